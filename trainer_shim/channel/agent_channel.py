"""The agent's end of the channel to its host: frames, and the count of those that have come.

A training process whose host has ended ends too, since nobody would keep its lease. A process that
it has forked says nothing.
"""

from __future__ import annotations

import os
import threading

from trainer_shim.channel.frames import Message, receive, send
from trainer_shim.channel.pipes import ByteStream

HOST_GONE = 75
_LETTERS = 4000  # of a text: the words of an error may be of any length


class AgentChannel:
    """The frames on `channel`."""

    def __init__(self, channel: ByteStream) -> None:
        #: How many frames were taken out, of those that the page's `mail` counts.
        self.read = 0
        self._channel = channel
        self._early: list[Message] = []
        self._sending = threading.Lock()  # a checkpoint's writer speaks too
        self.is_silent = False

    def fall_silent(self) -> None:
        """Say nothing from here on, in a process that is not the trial's; and hear nothing."""
        self.is_silent = True
        self._channel.close()

    @property
    def is_sending(self) -> bool:
        """Whether something is being told to the host now."""
        return self._sending.locked()

    def send(self, message: Message) -> None:
        """Tell the host something."""
        if self.is_silent:
            return
        short = {k: v[:_LETTERS] if isinstance(v, str) else v for k, v in message.items()}
        with self._sending:
            try:
                send(self._channel, short)
            except OSError:
                os._exit(HOST_GONE)

    def next(self) -> Message:
        """What the host has said next, waited for if need be."""
        message: Message | None
        try:
            message = self._early.pop(0) if self._early else receive(self._channel)
        except OSError:
            message = None
        if message is None:
            os._exit(HOST_GONE)
        self.read += 1
        return message

    def wait_for(self, kind: str) -> None:
        """Wait until the host has said `kind`; what it says before is for later."""
        early = []
        while (message := self.next())["kind"] != kind:
            early.append(message)
        self._early += early
        self.read -= len(early)
