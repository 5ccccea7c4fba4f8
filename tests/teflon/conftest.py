# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a network was seen to do is printed behind its verdict."""

import pytest


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    notes = [str(text) for name, text in report.user_properties if name == "seen"]
    if report.when == "call" and report.passed and notes:
        return "passed", ".", "PASSED " + "; ".join(notes)
    return None
