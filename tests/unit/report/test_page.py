from __future__ import annotations

import hashlib
import re
from functools import cache

import pytest

from rackproof.core.evidence import CommandRecord, DeployRecord, NodeChanges, NodeInfo
from rackproof.core.status import Status
from rackproof.core.wording import shortened
from rackproof.report.outputs import COMMAND_LENGTH, SHOWN_BYTES, TITLE_LENGTH, Producer
from rackproof.report.page import render_page
from rackproof.report.schema import Certificate

from .browser import Page
from .sample import GPUS, Raw, architecture, deploys, measurements, passing, rejudged, run_info, sample

pytestmark = pytest.mark.few(10)

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}{% raw %}\x1b[31m\x00\u202e"


@cache
def rendered() -> str:
    return render_page(*sample())


def hostile() -> tuple[Certificate, Raw]:
    """Everything that a node, an inventory or a file can say, said with malice."""
    certificate, raw = sample()
    sha = raw.add(EVIL, EVIL, EVIL.encode() + b"\xff\xfe", None, EVIL.encode())
    verdicts = [
        v.model_copy(
            update={
                "id": f"{v.id}{EVIL}",
                "title": EVIL,
                "message": EVIL,
                "hint": EVIL,
                "reason": EVIL,
                "source": EVIL,
                "bar": EVIL,
                "statistic": EVIL,
                "subject": v.subject if i % 3 else f"{v.subject}|{EVIL}",
                "raw": (sha, "../../etc/passwd"),
                "unit": EVIL,
            }
        )
        for i, v in enumerate(certificate.verdicts)
    ]
    numbers = [
        m.model_copy(
            update={
                "labels": dict.fromkeys(m.labels, EVIL),
                "conditions": {EVIL: EVIL, "versions": {EVIL: EVIL}},
                "reason": EVIL,
                "samples": (),
                "unit": EVIL,
                "raw": (sha,),
            }
        )
        if i % 2
        else m.model_copy(update={"unit": EVIL})
        for i, m in enumerate(measurements(Raw()))
    ]
    run = run_info([NodeInfo(name=EVIL, groups=(EVIL,), virtual=True), *run_info().nodes]).model_copy(
        update={"run": EVIL, "inventory": EVIL, "profile": EVIL, "rackproof": EVIL, "started": EVIL}
    )
    arch = architecture()
    arch = arch.model_copy(
        update={
            "metadata": arch.metadata.model_copy(
                update={
                    "title": EVIL,
                    "scope": EVIL,
                    "sources": {EVIL: arch.metadata.sources["kit"].model_copy(update={"doc": EVIL})},
                }
            )
        }
    )
    done = DeployRecord(
        inventory=EVIL,
        deploy=EVIL,
        exit_status=1,
        ok=False,
        reason=EVIL,
        nodes=(NodeChanges(node=EVIL, reached=True, changed=(EVIL,) * 9, failed=(EVIL,), reason=EVIL),),
        elapsed_s=1.0,
        raw=(sha,),
    )
    return (
        rejudged(
            certificate,
            verdicts,
            measurements=numbers,
            run=run,
            architecture=arch,
            deploys=[done],
            commands=raw.commands,
            notes=(EVIL,),
        ),
        raw,
    )


@pytest.mark.parametrize("of", [sample, passing, hostile])
def test_well_formed_and_self_contained(of: object) -> None:
    source = render_page(*of())  # type: ignore[operator]
    page = Page(source)
    assert page.problems == []
    assert "script" not in page.tags()
    assert page.tags() & {"img", "iframe", "object", "embed", "form", "base", "audio", "video", "source"} == set()
    for tag, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on")], tag
        assert "src" not in attrs
        if tag == "link":
            assert attrs["href"] == "data:,"
    own = re.compile(r"#[\w-]+|raw/[0-9a-f]{64}|certificate\.json|evidence\.jsonl|junit\.xml|data:,")
    assert [href for href in page.hrefs() if not own.fullmatch(href)] == []
    style = source[source.index("<style>") : source.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("of", [sample, passing, hostile])
def test_every_link_inside_the_page_leads_somewhere_once(of: object) -> None:
    page = Page(render_page(*of()))  # type: ignore[operator]
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert {href[1:] for href in page.hrefs() if href.startswith("#")} <= set(ids)


def test_every_verdict_is_there() -> None:
    certificate, _ = sample()
    text = " ".join(Page(rendered()).text.split())
    for verdict in certificate.verdicts:
        name, _, item = verdict.id.partition("[")
        assert name in text
        for part in item.removesuffix("]").split(","):
            assert part.replace("4194304", "4\u00a0MiB").replace("1024", "1\u00a0KiB") in text or part.isdecimal()
        if verdict.kind == "criterion":
            assert verdict.title in text
        if verdict.status is not Status.PASS:
            assert verdict.message in text
            assert verdict.hint in text


def test_every_output_behind_a_verdict_or_a_number_has_its_block() -> None:
    certificate, _ = sample()
    page = Page(rendered())
    used = {sha for v in certificate.verdicts for sha in v.raw} | {
        sha for m in certificate.measurements for sha in m.raw
    }
    assert used
    assert {f"raw-{sha[:12]}" for sha in used} <= set(page.ids())
    assert {f"#raw-{sha[:12]}" for sha in used} <= set(page.hrefs())
    assert {f"raw/{sha}" for sha in used} <= set(page.hrefs())


def test_verdict_comes_first_and_in_words() -> None:
    text = Page(rendered()).text
    order = [
        text.index(part)
        for part in (
            "NOT CERTIFIED\n2 of 75",
            "Virtual rack\n",
            "75 required verdicts:",
            "scratch",
            "What to do",
            "Checks",
        )
    ]
    assert order == sorted(order)


def test_simulation_is_stated_on_screen_and_on_every_printed_page() -> None:
    source = rendered()
    page = Page(source)
    statement = "GPUs of gpu-[01-02] are simulated: device tools replay recorded answers."
    assert page.text.count(statement) == 2
    assert ".running { display: table-header-group" in source
    assert ("aside", {"class": "not-hardware", "aria-label": "Not real hardware"}) in page.elements


def test_real_rack_has_no_such_banner() -> None:
    real = architecture().model_copy(update={"fabric": architecture().fabric.model_copy(update={"kind": "roce"})})
    nodes = [n.model_copy(update={"virtual": False, "simulated_gpus": False}) for n in run_info().nodes]
    certificate = rejudged(passing()[0], passing()[0].verdicts, architecture=real, run=run_info(nodes))
    assert "aside" not in Page(render_page(certificate, {})).tags()


def test_numbers_have_units_and_distance_a_sign() -> None:
    text = Page(rendered()).text
    assert "8.12\u00a0MB/s" in text
    assert "2.05\u00a0%" in text
    assert "\u221231.8\u00a0%" in text
    assert "≥ 3 %" in text


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("mixed.accelerator_utilisation_loss", "points of utilisation that training loses beside inference"),
        ("mixed.inference_latency_loss", "growth of a request's 99th percentile beside training"),
    ],
)
def test_losses_beside_another_load_are_named_with_their_unit(metric: str, name: str) -> None:
    update = {"metric": metric, "unit": "percent", "labels": {"workload": "resnet50"}}
    loss = measurements(Raw())[0].model_copy(update=update)
    text = Page(render_page(rejudged(passing()[0], [], measurements=[loss]), {})).text
    assert f"{name}, workload resnet50%" in text


def test_tables_of_measurements_have_their_names() -> None:
    regions = [attrs["aria-label"] for _, attrs in Page(rendered()).elements if attrs.get("role") == "region"]
    assert {"scratch", "nfs-rdma", "nfs-tcp", "cephfs", "Between nodes"} <= set(regions)


def test_unmeasured_is_never_a_number() -> None:
    page = Page(rendered())
    assert "gpu-02, write 1\u00a0MiB: fio exited with 1: No space left on device" in page.text
    assert "1 of 2 clients" in page.text


def test_hostile_text_stays_text() -> None:
    source = render_page(*hostile())
    assert "<script" not in source
    assert "<img" not in source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in source
    assert "{{ 7*7 }}" in source
    assert "\x1b" not in source
    assert "\x00" not in source
    assert "\u202e" not in source
    assert "⟨U+202E⟩" in source


def test_name_that_is_no_hash_is_never_a_link() -> None:
    page = Page(render_page(*hostile()))
    assert "../../etc/passwd" in page.text
    assert [href for href in page.hrefs() if "passwd" in href.replace("#", "", 1) and not href.startswith("#")] == []


def test_escape_sequences_of_an_output_do_not_show() -> None:
    page = Page(rendered())
    assert "506 Cannot talk to daemon" in page.text
    assert "[31m" not in page.text


def test_long_output_is_cut_and_linked() -> None:
    certificate, raw = sample()
    long = next(data for data in raw.values() if len(data) > SHOWN_BYTES)
    sha = hashlib.sha256(long).hexdigest()
    page = Page(render_page(certificate, raw))
    assert "all_gather 100\n" in page.text
    assert long.decode().splitlines()[-1] not in page.text
    assert "The first 16\u00a0KiB of" in page.text
    assert f"raw/{sha}" in page.hrefs()


def test_missing_output_is_named() -> None:
    certificate, _ = sample()
    page = Page(render_page(certificate, {}))
    assert "The output's file was missing when the page was made." in page.text
    assert page.problems == []


def test_large_outputs_do_not_make_a_large_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackproof.report.outputs.PAGE_BYTES", 2000)
    certificate, raw = sample()
    page = Page(render_page(certificate, raw))
    assert "Left out to keep the page small." in page.text
    # What did not pass gets its place first.
    failing = next(v for v in certificate.verdicts if v.status is Status.FAIL)
    assert raw[failing.raw[0]].decode().strip() in page.text


def test_two_outputs_that_begin_alike_stay_apart() -> None:
    certificate, _ = passing()
    names = ["a" * 12 + "1" * 52, "a" * 12 + "2" * 52]
    verdicts = [v.model_copy(update={"raw": (names[i % 2],)}) for i, v in enumerate(certificate.verdicts)]
    page = Page(render_page(rejudged(certificate, verdicts), {}))
    assert {f"raw-{name}" for name in names} <= set(page.ids())


def test_same_output_of_two_nodes_is_one_block() -> None:
    raw = Raw()
    for node in GPUS:
        raw.add(node, "uname -r", "6.12.57\n")
    certificate = rejudged(passing()[0], [], commands=raw.commands, measurements=[])
    page = Page(render_page(certificate, raw))
    assert page.text.count("uname -r") == 2
    assert "gpu-[01-02]" in page.text


def test_command_that_never_ended() -> None:
    raw = Raw()
    raw.add("gpu-01", "df /mnt/nfs-tcp", "", rc=None)
    page = Page(render_page(rejudged(passing()[0], [], commands=raw.commands, measurements=[]), raw))
    assert "no exit status: no answer within 30 s" in page.text
    assert "The command printed nothing." in page.text


def test_nothing_measured_is_stated_and_no_plot_is_empty() -> None:
    page = Page(render_page(rejudged(passing()[0], [], measurements=[]), {}))
    for sentence in (
        "Nothing was measured",
        "No check was run.",
        "No storage was measured.",
        "No link between two nodes was measured.",
        "No collective operation was measured.",
        "there are no verdicts",
        "No output was recorded.",
    ):
        assert sentence in page.text
    assert [attrs for tag, attrs in page.elements if tag == "svg" and attrs.get("role") == "img"] == []


def test_deploy_says_what_changed() -> None:
    raw = Raw()
    page = Page(render_page(rejudged(passing()[0], [], deploys=deploys(raw), commands=raw.commands), raw))
    assert "8 changes" in page.text
    assert "base: sysctl" in page.text


def test_node_that_was_not_reached() -> None:
    done = deploys(Raw())[0].model_copy(
        update={"nodes": (NodeChanges(node="gpu-02", reached=False, reason="connection refused"),), "ok": False}
    )
    text = Page(render_page(rejudged(passing()[0], [], deploys=[done]), {})).text
    assert "not reached" in text
    assert "connection refused" in text


def test_rack_of_a_hundred_nodes_is_folded() -> None:
    certificate, _ = passing()
    names = [f"gpu-{i:03d}" for i in range(1, 101)]
    check = next(v for v in certificate.verdicts if v.id == "fabric.mtu")
    number = next(m for m in measurements(Raw()) if m.metric == "storage.read_bandwidth")
    verdicts = [check.model_copy(update={"subject": name}) for name in names]
    verdicts[41] = verdicts[41].model_copy(update={"status": Status.FAIL, "message": "expected 9000 actual 1500"})
    numbers = [number.model_copy(update={"members": (name,), "samples": (400.0 + i,)}) for i, name in enumerate(names)]
    run = run_info(NodeInfo(name=name, groups=("gpu",)) for name in names)
    source = render_page(rejudged(certificate, verdicts, run=run, measurements=numbers), {})
    page = Page(source)
    assert page.problems == []
    assert "gpu-[001-041,043-100]" in page.text
    assert "FAIL gpu-042" in page.text
    assert "400 to 499" in page.text
    assert source.count('class="mark"') >= 50, "neighbours may share a mark"


def test_long_tables_keep_the_worst_and_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackproof.report.tables.ROWS", 5)
    certificate, _ = passing()
    criterion = next(v for v in certificate.verdicts if v.id == "local-read-bandwidth")
    names = [f"gpu-{i:02d}" for i in range(20)]
    verdicts = [criterion.model_copy(update={"subject": name}) for name in names]
    verdicts[3:10] = [v.model_copy(update={"status": Status.FAIL, "message": "slow"}) for v in verdicts[3:10]]
    text = Page(render_page(rejudged(certificate, verdicts, measurements=[]), {})).text
    assert "15 more rows, 2 of them with a finding, are in certificate.json" in text
    assert "gpu-[03-09]" in text


def test_unknown_metrics_have_a_table_too() -> None:
    odd = measurements(Raw())[0].model_copy(
        update={"metric": "gpu.hbm_bandwidth", "labels": {"gpu": "3"}, "samples": (2890.0,), "unit": "GB/s"}
    )
    text = Page(render_page(rejudged(passing()[0], [], measurements=[odd]), {})).text
    assert "gpu.hbm_bandwidth, gpu 3" in text
    assert "2\u202f890" in text


def test_conditions_are_told_once_and_nothing_twice() -> None:
    text = Page(rendered()).text
    section = text[text.index("Conditions, versions, sources") : text.index("Controller and versions")]
    assert section.count("dropped on clients and server before each run") == 1
    assert "cephfs, nfs-rdma, nfs-tcp, scratch" in section
    assert "3.39" not in section


def test_same_bytes_twice() -> None:
    assert render_page(*sample()) == rendered()


def test_raw_of_a_command_without_files() -> None:
    lost = CommandRecord(
        node="gpu-01",
        command="true",
        rc=None,
        stdout="",
        stderr="",
        stdout_bytes=0,
        stderr_bytes=0,
        elapsed_s=1.0,
        timeout_s=1.0,
        error="connection lost",
    )
    certificate = rejudged(passing()[0], [], commands=[lost], measurements=[])
    assert certificate.evidence.raw == ()
    assert Page(render_page(certificate, {})).problems == []


def test_a_command_of_many_lines_is_folded_beside_its_finding() -> None:
    certificate, raw = sample()
    (first, *_) = [v for v in certificate.verdicts if v.status is Status.FAIL and v.raw]
    commands = [c.model_copy(update={"command": "true\n" * 9 + "false"}) for c in raw.commands]
    page = render_page(rejudged(certificate, [first], commands=commands), raw)
    assert Page(page).problems == []
    assert "a command of 10 lines</summary>" in page
    assert " lines</summary>" not in render_page(rejudged(certificate, [first]), raw)


def test_a_long_line_is_folded_beside_its_finding() -> None:
    certificate, raw = sample()
    (first, *_) = [v for v in certificate.verdicts if v.status is Status.FAIL and v.raw]
    commands = [c.model_copy(update={"command": "x" * 801}) for c in raw.commands]
    page = render_page(rejudged(certificate, [first], commands=commands), raw)
    assert Page(page).problems == []
    assert "a command of 801 characters</summary>" in page


def test_a_long_command_is_cut_in_titles_and_above_its_output() -> None:
    assert shortened("uname -r", TITLE_LENGTH) == "uname -r"
    producer = Producer("gpu-01", "x" * 5000, "stdout", 0, None, 1.0)
    assert (len(producer.title), len(producer.shown)) == (TITLE_LENGTH, COMMAND_LENGTH)
    assert producer.command == "x" * 5000
