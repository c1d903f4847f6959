"""Specs for tests, written as Python mappings in the study file's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermesd.pb.hermes.v1 import types_pb2 as pb


def value(given: Any) -> pb.Value:
    match given:
        case bool():
            return pb.Value(bool_value=given)
        case int():
            return pb.Value(int_value=given)
        case float():
            return pb.Value(double_value=given)
        case str():
            return pb.Value(string_value=given)
        case list():
            return pb.Value(list_value=pb.ValueList(values=[value(item) for item in given]))
        case None:
            return pb.Value()
        case _:
            raise TypeError(given)


def parameter(name: str, given: Mapping[str, Any]) -> pb.Parameter:
    message = pb.Parameter(name=name)
    for key, item in given.items():
        match key:
            case "value" | "min" | "max":
                getattr(message, key).CopyFrom(value(item))
            case "values":
                message.values.extend(value(one) for one in item)
            case "distribution":
                message.distribution = pb.Distribution.Value(f"DISTRIBUTION_{item.upper()}")
            case "sequence":
                _sequence(message.sequence, item)
            case "when":
                for name, values in item.items():
                    message.when.add(name=name, values=[value(one) for one in values])
            case "probabilities":
                message.probabilities.extend(item)
            case _:
                setattr(message, key, item)
    return message


def _sequence(message: pb.Sequence, given: Mapping[str, Any]) -> None:
    for key, item in given.items():
        match key:
            case "values" | "after" | "at":
                getattr(message, key).extend(value(one) for one in item)
            case "shape":
                message.shape = pb.SequenceShape.Value(f"SEQUENCE_SHAPE_{item.upper()}")
            case "steps_per_epoch":
                message.steps_per_epoch = item
            case _:
                getattr(message, key).CopyFrom(value(item))


def plugin(name: str, **settings: Any) -> pb.Plugin:
    named = [pb.NamedValue(name=key, value=value(item)) for key, item in settings.items()]
    return pb.Plugin(name=name, settings=named)


def spec(parameters: Mapping[str, Mapping[str, Any]] | None = None, **fields: Any) -> pb.StudySpec:
    """A small grid study unless told otherwise."""
    if parameters is None:
        parameters = {"lr": {"values": [0.1, 0.01]}, "batch": {"values": [16, 32]}}
    message = pb.StudySpec(**{"program": "train.py", "name": "digits", **fields})
    message.parameters.extend(parameter(name, given) for name, given in parameters.items())
    return message
