"""Programs that do to their own process what nobody expects train, end and fail as they would."""

from __future__ import annotations

import pytest

from tests.trainer_shim.conftest import MakeTrial
from tests.trainer_shim.test_host import LOOP, expected

MUTE = "import builtins, sys\nbuiltins.print = lambda *_: None\n"
ODD = {
    "writes through something that cannot be flushed": """
import sys
class Tee:
    def __init__(self, stream): self.stream = stream
    def write(self, text): self.stream.write(text)
sys.stdout = Tee(sys.stdout)
""",
    "has closed its output": f"{MUTE}sys.stdout.close()\n",
    "has no output": f"{MUTE}sys.stdout = sys.stderr = None\n",
    "is no module": "import sys\ndel sys.modules['__main__']\n",
    "has signal handlers and a timer": """
import signal, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCONT, signal.SIGALRM, signal.SIGCHLD):
    signal.signal(number, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
""",
    "works elsewhere": "import os\nos.makedirs('sub', exist_ok=True)\nos.chdir('sub')\n",
    "may open few files": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n",
}


@pytest.mark.parametrize("what", ODD)
def test_a_program_that(make_trial: MakeTrial, what: str) -> None:
    trial = make_trial(ODD[what] + LOOP, "6").launch()
    trial.start(limit=3)
    trial.until("parked")
    trial.suspend("checkpoint")
    trial.start(restore=trial.until("suspended")["checkpoint"]["path"])
    assert trial.until("completed")["exit_code"] == 0
    assert trial.losses() == expected(6)
    assert "Error" not in trial.output


def test_a_program_that_has_no_room_for_files_trains(make_trial: MakeTrial) -> None:
    """What is noted of its folder for a re-run fits nowhere."""
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))\n"
    trial = make_trial(limit + LOOP.replace("print", "(lambda *_: 0)"), "6").launch()
    trial.start()
    trial.until("completed")
    assert trial.losses() == expected(6)


@pytest.mark.parametrize("fails", [False, True])
def test_a_hook_of_the_programs_own_is_told_what_nobody_caught(
    make_trial: MakeTrial, fails: bool
) -> None:
    hook = f"""
import atexit, sys
def hook(kind, error, trace):
    print("HOOK", kind.__name__, error, trace.tb_frame.f_code.co_name)
    {fails} and 1 / 0
sys.excepthook = hook
atexit.register(lambda: print("LAST", sys.last_type.__name__))
raise KeyError("missing")
"""
    trial = make_trial(hook).launch()
    trial.start()
    with pytest.raises(AssertionError, match="KeyError: 'missing'"):
        trial.until("completed")
    assert "HOOK KeyError 'missing' <module>" in trial.output
    assert trial.output.endswith("LAST KeyError\n")
    assert ("ZeroDivisionError" in trial.output) is fails
    assert ("KeyError: 'missing'" in trial.output) is fails


@pytest.mark.parametrize(("given", "code"), [("256", 0), ("0", 0), ("None", 0), ("-1", 255)])
def test_the_code_of_an_exit_is_what_the_system_makes_of_it(
    make_trial: MakeTrial, given: str, code: int
) -> None:
    trial = make_trial(f"raise SystemExit({given})").launch()
    trial.start()
    if code == 0:
        assert trial.until("completed")["exit_code"] == 0
    else:
        with pytest.raises(AssertionError, match=f"exit status {code}"):
            trial.until("completed")


def test_a_program_that_closes_what_it_has_not_opened_is_told_so(make_trial: MakeTrial) -> None:
    trial = make_trial("import os\nos.closerange(3, 1000)\n" + LOOP, "6").launch()
    trial.start()
    with pytest.raises(AssertionError, match="has closed its connection to Hermes"):
        trial.until("completed")
