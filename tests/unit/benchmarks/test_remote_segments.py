"""The benchmark of remote segments measures what a broker does."""

from pathlib import Path

from benchmarks.remote_segments import measure


def test_figures_are_measured_over_a_log_of_its_own(tmp_path: Path) -> None:
    """A benchmark that nothing runs breaks unseen."""
    figures = measure(tmp_path, value_bytes=100, size_bytes=1024 * 1024)
    assert min(figures) > 0
    assert 1.5 < figures.ratio < 3, "half of each value is noise"
