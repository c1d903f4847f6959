"""Turns records into text, tables, charts and live displays.

Functions here are pure, except those that write to the terminal. Nothing of `commands` may enter.
"""
