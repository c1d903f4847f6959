"""The blocking client's thread: how a script ends that uses it, by itself or by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hermesctl
from hermesctl import Client, HermesError, UsageError
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.hermesctl.fake_head import FakeHead, event, trial

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "an iterator is left at the end of the script": """
        client = Client()
        stream = client.events()
        print(next(stream).sequence, flush=True)
    """,
    "a second client besides": """
        clients = [Client(), Client()]
        streams = [client.events() for client in clients]
        print(*{next(stream).sequence for stream in streams}, flush=True)
    """,
    "an iterator outlives the client": """
        with Client() as client:
            stream = client.events()
            print(next(stream).sequence, flush=True)
    """,
    "a stream of another kind outlives the client": """
        with Client() as client:
            stream = client.export("digits")
            next(stream)
            print(1)
    """,
    "the script fails": """
        try:
            for one in Client().events():
                print(one.sequence, flush=True)
                sys.exit(0)
        finally:
            pass
    """,
    "a process without the client's thread ends": """
        client = Client()
        child = os.fork()
        if not child:
            sys.exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        print(1)
    """,
}


def script(text: str) -> subprocess.Popen[str]:
    lines = "\n".join(line[8:] for line in text.splitlines())
    program = f"import os, sys\nfrom hermesctl import Client\n{lines}"
    return subprocess.Popen(
        # From Python 3.12 on, that a process with threads forks is a warning.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_ends_by_itself_without_a_word(head: FakeHead, text: str) -> None:
    head.add_study("digits", trial(1))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED)]
    with script(text) as process:
        try:
            assert process.communicate() == ("1\n", "")
        finally:
            process.kill()
    assert process.returncode == 0


@pytest.mark.parametrize("stream", ["client.events()", 'client.follow("digits")'])
def test_ctrl_c_in_a_stream_is_a_keyboard_interrupt(head: FakeHead, stream: str) -> None:
    head.add_study("digits", trial(1))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED)]
    text = f"""
        client = Client()
        try:
            for one in {stream}:
                print(one.sequence, flush=True)
        except KeyboardInterrupt:
            print(client.best("digits", 1)[0].id)
            raise
    """
    with script(text) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate()
        finally:
            process.kill()
    assert out == "digits/1\n", errors
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "Error" not in errors
    assert process.returncode == -signal.SIGINT
    assert head.cancelled.wait(30)


def test_a_call_after_close_is_an_error_of_ours(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    client = Client()
    stream = client.trials("digits")
    assert next(stream).number == 1
    client.close()
    for call in (client.nodes, lambda: next(client.studies()), lambda: next(stream)):
        with pytest.raises(HermesError, match="the client is closed"):
            call()
    client.close()


def test_a_client_says_whose_it_is_and_the_package_names_what_there_is(head: FakeHead) -> None:
    """As a notebook shows them."""
    with Client() as client:
        socket = str(client._client.connection.address)
        assert repr(client) == f"<Client of {socket}>"
        assert repr(client._client) == f"<AsyncClient of {socket}>"
    assert dir(hermesctl) == sorted(hermesctl.__all__), "no module that is only ours"


def test_two_threads_may_close_a_client(head: FakeHead) -> None:
    client, together, raised = Client(), threading.Barrier(2), list[BaseException]()

    def close() -> None:
        together.wait()
        try:
            client.close()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []


def test_a_call_that_waits_while_the_client_is_closed_is_an_error_of_ours(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    client = Client()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            client.wait("digits")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert head.watching.wait(30)
    client.close()
    thread.join()
    assert [(type(e), str(e)) for e in raised] == [
        (UsageError, "the client was closed during the call")
    ]


def test_a_callback_that_calls_its_client_is_told_so(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STARTED)]
    head.break_after = [0]
    with Client() as client:
        stream = client.events(on_gap=lambda _: print(client.nodes()))
        with pytest.raises(UsageError, match="expected no call within on_gap"):
            next(stream)
