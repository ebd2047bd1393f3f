"""Messages name settings as the user gave them: flags of a command line, keys of a file and of Python."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import Zerolm

from zerolm.settings.messages import called, called_as, check_known, nearest
from zerolm.settings.units import BYTES, parse_amount


def test_keys_of_a_file_stay(zerolm: Zerolm, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("space: llama\nmax_params: many\n")
    assert "zerolm: max_params must be a number" in zerolm("search", "--config", str(file)).err
    assert "zerolm: --max-params must be" in zerolm(
        "search", "--config", str(file), "--max-params", "few"
    ).err  # fmt: skip
    file.write_text("space: llama\nmax_prams: 1M\n")
    ran = zerolm("search", "--config", str(file))
    assert "did you mean 'max_params'? the nearest of " in ran.err
    assert ran.err.count(",") == 2


def test_names_within_quotes_and_paths_stay() -> None:
    texts = ["'max_params'", "my/max_params", "max_params.json", "xmax_params", "`max_params`", "max_params="]
    with called_as({"max_params": "--max-params"}):
        assert called("max_params") == "--max-params"
        assert called("for_") == "for"
    for text in texts:
        with pytest.raises(ValueError) as raised, called_as({"max_params": "--max-params"}):  # noqa: PT011
            raise ValueError(f"{text} and max_params 3")
        assert str(raised.value) == f"{text} and --max-params 3"
    assert called("max_params") == "max_params"


@given(st.lists(st.text("abcdef_", min_size=1), max_size=60, unique=True), st.text("abcdef_", min_size=1))
def test_few_names_are_listed_and_three_of_many(names: list[str], name: str) -> None:
    message = nearest(name, names)
    if len(names) == 1:
        assert message == f"; there is only {names[0]}"
        return
    if len(names) <= 16:
        assert message.endswith(f" there are {', '.join(names) or 'none'}")
    else:
        listed = message.partition(" are ")[2].split(", ")
        assert len(listed) == 3
        assert {each.strip("'") for each in listed} <= set(names)
    assert (f"did you mean {name!r}?" in message) == (name in names)


@given(
    st.lists(st.text("abc", min_size=1), max_size=20, unique=True),
    st.one_of(st.text("abc", min_size=1), st.integers(), st.none(), st.lists(st.text("a"), max_size=2)),
)
def test_what_is_no_known_name_is_refused(names: list[str], value: object) -> None:
    if value in names:
        check_known("part", value, iter(names))
        return
    with pytest.raises(ValueError, match=r"^part .* is not known; ") as refused:
        check_known("part", value, dict.fromkeys(names))
    assert str(refused.value).endswith(nearest(str(value), names))


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(unit for unit in BYTES if unit)))
def test_sizes_are_rounded_down_to_whole_bytes(whole: int, part: int, unit: str) -> None:
    scale = BYTES[unit]
    if scale == 1:
        return
    size = parse_amount("max_weight_bytes", f"{whole}.{part:03}{unit}")
    assert size == (1000 * whole + part) * scale // 1000
    assert parse_amount("--memory", f"{whole}.{part:03} {unit.upper()}") == size


@pytest.mark.parametrize("text", ["1.5", "1.5B", "2.4MiBs", "3 M"])
def test_no_parts_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="max_weight_bytes"):
        parse_amount("max_weight_bytes", text)
