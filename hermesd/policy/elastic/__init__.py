"""Elastic width, after Optimus (EuroSys 2018): how many devices each trial is to have.

What is left of a trial (`loss`) and how its speed follows its width (`speed`) are fitted to what
it has shown; `gain` divides the devices by them.
"""
