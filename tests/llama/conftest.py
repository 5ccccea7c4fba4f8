# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which checks run, what they are given, and what their verdicts are.

A check is a test function, or all parameters of one: `f16-same-text` is `test_f16_same_text`. What
the outside world took away is a skip that says SKIP-EXTERNAL: no network, a package gone, or a
ggml newer than the newest that this was tested with and that does not work.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from options import OPTIONS, External
from reference import Reference
from models import Models

# Newest ggml that all checks were seen to pass with.
NEWEST_TESTED_GGML = (0, 27)
EXTERNAL = "SKIP-EXTERNAL "


def check_of(item: pytest.Function) -> str:
    """The name of its check, or of the check that it belongs to."""
    mark = item.get_closest_marker("check")
    return mark.args[0] if mark else item.originalname.removeprefix("test_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    wanted = {name.replace("-", "_") for name in OPTIONS.checks}
    known = {check_of(item) for item in items}
    if wanted - known:
        raise pytest.UsageError(f"no check is called {wanted - known}; there are {sorted(known)}")

    def runs(item: pytest.Function) -> bool:
        return check_of(item) in wanted if wanted else not item.get_closest_marker("on_request")

    config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
    items[:] = filter(runs, items)


@pytest.fixture(scope="session")
def stock() -> Models:
    stock = Models()
    print(f"\nllama.cpp of Debian {OPTIONS.suite}, ggml {stock.ggml_version}, in {stock.root}")
    return stock


@pytest.fixture
def reference(stock: Models) -> Iterator[Callable[[str, str, int], Reference]]:
    """Makes what the CPU writes with a model after a prompt."""
    with ExitStack() as running:
        start = lambda model, *text: Reference(stock, stock.full(model), *text)
        yield lambda *text: running.enter_context(start(*text))


@pytest.fixture
def seen(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Tells what a check saw, which is printed behind its verdict."""
    return lambda text: record_property("seen", text)


def is_newer(version: str) -> bool:
    numbers = version.split(".")[:2]
    return all(n.isdigit() for n in numbers) and tuple(map(int, numbers)) > NEWEST_TESTED_GGML


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    if not report.failed:
        return report
    error = call.excinfo.value
    ggml = getattr(item, "ggml", None) or getattr(item.funcargs.get("stock"), "ggml_version", "")
    if isinstance(error, External):
        why = str(error)
    elif is_newer(ggml):
        tested = ".".join(map(str, NEWEST_TESTED_GGML))
        why = f"fails with ggml {ggml}, newer than {tested} that was tested with: {error}"
    else:
        return report
    report.outcome = "skipped"
    report.longrepr = (str(item.path), item.location[1], EXTERNAL + " ".join(why.split()))
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    notes = [str(text) for name, text in report.user_properties if name == "seen"]
    if report.when == "call" and report.passed and notes:
        return "passed", ".", "PASSED " + "; ".join(notes)
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What did not run, as `cargo xtask ci` reads it."""
    for report in terminalreporter.stats.get("skipped", []):
        name = report.nodeid.rpartition("::test_")[2]
        why = report.longrepr[2].removeprefix("Skipped: ")
        mark = EXTERNAL if why.startswith(EXTERNAL) else "SKIP "
        terminalreporter.write_line(f"{mark}{name}: {why.removeprefix(EXTERNAL)}")
