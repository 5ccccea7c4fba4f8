# SPDX-License-Identifier: MIT OR Apache-2.0
"""A scorer for best_of_n.py: sums of digits such as `7+6+9+4+8=`, answered by the running totals,
`13,22,26,34.`"""


def score(question: str, text: str) -> float:
    """The share of the running totals that are right, up to the first wrong one."""
    digits = [int(digit) for digit in question.rstrip("=").split("+")]
    totals = [sum(digits[:count]) for count in range(2, len(digits) + 1)]
    right = 0
    for total, written in zip(totals, text.rstrip(",.").split(",")):
        if written.strip() != f"{total:02}":
            break
        right += 1
    return right / len(totals)
