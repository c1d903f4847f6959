"""Hooks a framework at the moment the user's program has imported it.

Nothing is imported that the program does not import itself. A module that the zygote has already
imported is hooked before the program's first line.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable

from trainer_shim.adapters import seeds
from trainer_shim.agent import Agent
from trainer_shim.metrics import loggers
from trainer_shim.rerun import open_writers

if TYPE_CHECKING:
    from importlib.abc import Loader

    from trainer_shim.adapters.tensorflow.function import Loop
else:
    Loader = object  # importlib.abc imports more than a trial's start has time for

Action = Callable[[Agent], None]
Claim = Callable[[], "Agent | None"]

_loop: Loop | None = None  # the program's own loop on TensorFlow


def _numpy_imported(seed: int | None) -> None:
    # Numbers are drawn in many a process that is not the one that trains: it takes no agent.
    seeds.seed_numpy(seed)


def _tensorflow_imported(agent: Agent) -> None:
    import trainer_shim.adapters.tensorflow.hooks as tf

    seeds.seed_tensorflow(agent)
    global _loop
    _loop = tf.install(agent)
    open_writers.freeze()


def _keras_imported(agent: Agent) -> None:
    import trainer_shim.adapters.keras.hooks as keras
    import trainer_shim.adapters.tensorflow.keras_fits as tf_fits

    plain_fit = tf_fits.plain_fit()
    keras.install(agent)
    tf_fits.share(_loop, plain_fit)
    open_writers.freeze()


def _legacy_keras_imported(agent: Agent) -> None:
    import trainer_shim.adapters.tensorflow.keras_fits as tf_fits

    tf_fits.hook_keras_2(agent, _loop)


def _torch_imported(agent: Agent) -> None:
    import trainer_shim.adapters.torch.hooks as torch_hooks

    torch_hooks.install(agent)
    seeds.seed_torch()
    open_writers.freeze()


def _torch_trainer_imported(package: str, agent: Agent) -> None:
    import trainer_shim.adapters.torch.trainers as torch_trainers

    torch_trainers.install(package)


_ACTIONS: dict[str, Action] = {
    "tensorflow": _tensorflow_imported,
    "keras": _keras_imported,
    "tf_keras": _legacy_keras_imported,
    "torch": _torch_imported,
    # They import PyTorch themselves, before anything of theirs is there.
    "lightning.pytorch": functools.partial(_torch_trainer_imported, "lightning.pytorch"),
    "pytorch_lightning": functools.partial(_torch_trainer_imported, "pytorch_lightning"),
    "transformers.trainer": functools.partial(_torch_trainer_imported, "transformers.trainer"),
}
_ORDER = ("numpy", *_ACTIONS)


def install(agent: Agent) -> None:
    """Seed Python, and watch for the frameworks there are adapters for."""
    watch(agent.seed, lambda: agent)


def watch(seed: int | None, claim: Claim) -> None:
    """As `install`, in a process whose agent is made by `claim` when it first needs one; None from
    there leaves the framework as it is."""
    seeds.seed_python(seed)
    actions = {name: functools.partial(_act, action, claim) for name, action in _ACTIONS.items()}
    actions["numpy"] = functools.partial(_numpy_imported, seed)
    for name in loggers.MODULES:  # an agent that there is by then is told: none is made for them
        actions[name] = functools.partial(loggers.install, name)
    waited_for = {}
    for name in (*_ORDER, *loggers.MODULES):
        if name in sys.modules:
            actions[name]()
        else:
            waited_for[name] = actions[name]
    sys.meta_path.insert(0, _Finder(waited_for))


def _act(action: Action, claim: Claim) -> None:
    agent = claim()
    if agent is not None:
        action(agent)


class _Finder:
    """Finds a watched module where the others would, and adds the action to its loading.

    To be found is not to be loaded: TensorFlow asks where Keras is long before it imports it.
    """

    def __init__(self, actions: dict[str, functools.partial[None]]) -> None:
        self._actions = actions
        self._asking: set[tuple[int, str]] = set()
        self._loading: list[str] = []
        self._loaded: list[str] = []

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        asked = (threading.get_ident(), fullname)
        if fullname not in self._actions or asked in self._asking:
            return None
        self._asking.add(asked)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(asked)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def begins(self, name: str) -> None:
        """A module is being loaded."""
        if name in _ORDER:
            self._loading.append(name)

    def ended(self, name: str, well: bool) -> None:
        """It was, or could not be. What it needs hooked first may still be under way: TensorFlow
        imports Keras before it is there itself."""
        if name not in _ORDER:
            if well and (action := self._actions.pop(name, None)) is not None:
                action()  # before anybody takes a function from it
            return
        self._loading.remove(name)
        if well:
            self._loaded.append(name)
        for each in [one for one in _ORDER if one in self._loaded]:
            if not any(_ORDER.index(other) < _ORDER.index(each) for other in self._loading):
                self._loaded.remove(each)
                action = self._actions.pop(each, None)
                if action is not None:
                    action()


class _Loader(Loader):
    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._finder.begins(module.__name__)
        well = False
        try:
            self._loader.exec_module(module)
            well = True
        finally:
            self._finder.ended(module.__name__, well)
