"""Linear probes that read what a program computes from the hidden states of the model that wrote it.

`subtasks.py` splits problems, `places.py` finds the tokens, `regression.py` fits, and
`result.py` measures. No model, sampler or judge here: the caller passes their output. Only `regression.py` and
`result.py` need torch.

Source: Jiang et al., CodeRL+: Improving Code Generation via Reinforcement with Execution Semantics Alignment, "Probe
Analyses" in section 4, and appendix B.
"""
