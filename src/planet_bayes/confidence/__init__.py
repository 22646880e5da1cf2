"""How sure the agent is: calibrated bands for what it predicts, and an alarm.

`prediction` is what members expect, `conformal` makes bands from the errors of held-out episodes,
`monitor` watches an agent while it acts, and `calibration` is what the monitor knows about the
agent, as a file.
"""
