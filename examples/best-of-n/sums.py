# SPDX-License-Identifier: MIT OR Apache-2.0
"""A scorer for best_of_n.py: sums of digits such as `7+6+9+4+8=`, answered by the running totals,
`13,22,26,34.`"""


def score(question: str, text: str) -> float:
    """The share of the running totals that are right, up to the first wrong one."""
    digits = [int(digit) for digit in question.rstrip("=").split("+")]
    totals = [sum(digits[:count]) for count in range(2, len(digits) + 1)]
    steps = text.rstrip(",.").split(",")
    if len(steps) > len(totals):
        return 0.0  # it adds something that is not in the question
    right = 0
    for total, step in zip(totals, steps):
        if step.strip() != f"{total:02}":
            break
        right += 1
    return right / len(totals)
