"""Arguments of DAOS's daemons."""

from __future__ import annotations

import pytest

from rackproof.parse import ParseError
from rackproof.parse.parallel_fs import DFUSE, Dfuse, parse_dfuse
from tests.unit.shell import sh


def answer(*processes: str) -> str:
    lines = []
    for number, words in enumerate(processes):
        lines += [f"process {100 + number}", *(f"argument {word}" for word in words.split())]
    return "".join(f"{line}\n" for line in (*lines, "end of dfuse"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dfuse --foreground --thread-count=8 /mnt/daos tank home", Dfuse("/mnt/daos", "tank", "home")),
        ("dfuse /mnt/daos/ tank home --multi-user", Dfuse("/mnt/daos", "tank", "home")),
        ("dfuse -m /mnt/daos --pool tank --container=home", Dfuse("/mnt/daos", "tank", "home")),
        ("dfuse -f -t 4 -e2 --mountpoint=/mnt/daos --pool=tank --container home", Dfuse("/mnt/daos", "tank", "home")),
        ("dfuse /mnt/daos -o rw,pool=tank,container=home", Dfuse("/mnt/daos", "tank", "home")),
        ("dfuse /mnt/daos --path /home/me/link", Dfuse("/mnt/daos", None, None)),
        ("dfuse /mnt/daos tank", Dfuse("/mnt/daos", "tank", None)),
    ],
)
def test_every_way_to_name_a_container_is_understood(words: str, expected: Dfuse) -> None:
    assert parse_dfuse(answer(words)) == (expected,)


def test_several_daemons_and_none() -> None:
    assert [d.container for d in parse_dfuse(answer("dfuse /a p one", "dfuse /b p two"))] == ["one", "two"]
    assert parse_dfuse(answer()) == ()


@pytest.mark.parametrize(
    "text", ["", "process 1\nargument dfuse\n", answer("dfuse --foreground"), "argument x\nend of dfuse\n", "what\n"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_dfuse(text)


def test_the_question_is_shell_and_its_answer_is_whole() -> None:
    completed = sh(DFUSE, check=True)
    parse_dfuse(completed.stdout)
