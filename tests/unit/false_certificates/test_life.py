"""Runs that are not the one that is claimed: other racks, machines, profiles; parts, losses, gaps."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import Any

import pytest
import yaml

from rackproof.core.evidence import Kind
from tests.unit.false_certificates.racks import World
from tests.unit.storage_nodes import JOB

pytestmark = pytest.mark.few(4)


def interrupt() -> None:
    raise KeyboardInterrupt


def stopped(world: World, step: str = "storage/local/read") -> None:
    """A run that is interrupted in its second step."""
    world.hooks[step] = interrupt
    result = world.run("certify", "a.py", "--quiet")
    assert result.exit_code != 0
    world.steps.clear()


def refused(world: World, *more: str, inventory: str = "a.py") -> str:
    """One line why a run is not continued; it is not touched."""
    before = world.records
    result = world.run("certify", inventory, "--quiet", *more)
    assert result.exit_code != 0
    assert world.records == before
    assert world.steps == []
    return str(result.exception)


def test_a_healthy_rack_is_certified(world: World) -> None:
    result = world.certify()
    assert result.exit_code == 0, result.output
    assert "CERTIFIED" in result.output
    assert world.certificate()["caveats"] == []
    assert {v["status"] for v in world.verdicts("run.identity").values()} == {"PASS"}
    assert world.steps == ["storage/nfs/read", "storage/local/read"]


def test_an_interrupted_run_is_continued_and_certified(world: World) -> None:
    stopped(world)
    assert world.run("judge", world.runs[0].name).exit_code == 2
    (interrupted,) = world.verdicts("run.interrupted").values()
    assert interrupted["message"] == "the run was interrupted in bench"
    result = world.certify("--resume", "latest")
    assert result.exit_code == 0, result.output
    assert world.steps == ["storage/local/read"]
    assert world.validations == 1
    assert len(world.runs) == 1


@pytest.mark.parametrize("extends", [True, False])
def test_the_deploy_declares_what_the_run_is_judged_against(world: World, extends: bool) -> None:
    """Also where the file has another name or place than its id says, and a file of this id says something else."""
    path = world.folder / "elsewhere/our rack.yaml"
    path.parent.mkdir()
    ours = yaml.safe_load((world.folder / "architectures/small.yaml").read_text())
    if extends:
        ours = {"apiVersion": "refarch/v1", "extends": "small", "metadata": {"id": "ours", "version": "2.0.0"}}
    ours["metadata"]["title"] = "Ours"
    path.write_text(yaml.safe_dump(ours))
    assert world.certify("--architecture", str(path)).exit_code == 0
    (info,) = (record.body for record in world.records if record.kind is Kind.RUN)
    assert [architecture.sha256 for architecture in world.declared] == [info["architecture_sha256"]]
    assert world.declared[0].model.metadata.title == "Ours"
    assert world.declared[0].model.metadata.derived_from == (("small",) if extends else ())


def test_a_run_of_the_profile_smoke_is_never_a_certificate(world: World) -> None:
    path = world.folder / "architectures/small.yaml"
    small = yaml.safe_load(path.read_text())
    small["profiles"]["lab"] = {"storage": {"jobs": {"read": JOB.model_dump(mode="json")}}}
    path.write_text(yaml.safe_dump(small))
    result = world.run("certify", "a.py", "--quiet", "--profile", "smoke")
    assert result.exit_code == 2, result.output
    assert world.steps == ["storage/nfs/read", "storage/local/read"]
    (verdict,) = world.verdicts("run.smoke").values()
    assert verdict["status"] == "UNMEASURED"
    assert [v["status"] for v in world.certificate()["verdicts"] if v["kind"] == "criterion" and v["required"]]
    assert "CERTIFIED" not in result.output.replace("INCOMPLETE", "")
    assert world.run("bench", "a.py", "--quiet", "--profile", "smoke").exit_code == 0


# two racks mixed


def test_a_run_is_not_continued_on_another_inventory_of_equal_names(world: World) -> None:
    stopped(world)
    name = world.runs[0].name
    assert refused(world, "--resume", name, inventory="b.py").endswith(
        "it is a run of a.py, not of b.py; start a new run"
    )
    assert "no run of b.py yet" in refused(world, "--resume", "latest", inventory="b.py")


def test_a_run_is_not_continued_where_the_inventory_names_other_nodes_by_the_same_names(world: World) -> None:
    stopped(world)
    world.addresses["a.py"] = "10.9.9."
    for run in (world.runs[0].name, "latest"):
        assert "a.py says something else of gpu-01 than when it began; start a new run" in refused(
            world, "--resume", run
        )


def test_latest_is_the_latest_run_of_this_inventory(world: World) -> None:
    stopped(world)
    world.certify(inventory="b.py")
    world.steps.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/local/read"]
    assert len(world.runs) == 2


def test_latest_is_not_a_run_whose_evidence_is_damaged(world: World) -> None:
    stopped(world)
    later = world.folder / "reports/20990101-000000-a"
    shutil.copytree(world.runs[0], later)
    path = later / "evidence.jsonl"
    path.write_text(path.read_text().replace('"outcome":"passed"', '"outcome":"failed"', 1))
    (world.folder / "reports/20990101-000000-b").mkdir()
    (world.folder / "reports/20990101-000000-b/evidence.jsonl").write_text("{rubbish\n")
    world.steps.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/local/read"]
    assert '"end"' in (world.runs[0] / "evidence.jsonl").read_text().splitlines()[-1]


# changed profile, kit and architecture


def test_a_run_is_not_continued_with_another_profile(world: World) -> None:
    world.hooks["storage/local/read"] = interrupt
    world.run("certify", "a.py", "--quiet", "--profile", "full")
    world.steps.clear()
    for run in (world.runs[0].name, "latest"):
        assert "it began with profile full, not lab; start a new run" in refused(
            world, "--resume", run, "--profile", "lab"
        )
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.certificate()["profile"] == "full"


def test_a_step_with_other_parameters_is_measured_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit's own plan has changed, although its version has not."""
    stopped(world)
    plan = world.plan
    for module in ("run.stages", "cli.proof"):
        monkeypatch.setattr(f"rackproof.{module}.plan_steps", lambda a, profile, r: plan(a, "bigger", r))
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/nfs/read", "storage/local/read"]


def test_a_run_is_not_continued_by_another_version_of_the_kit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(world)
    with monkeypatch.context() as patch:
        patch.setattr("rackproof.evidence.folder.__version__", "9.9")
        assert "recorded by rackproof 0.1.0, this is 9.9" in refused(world, "--resume", "latest")
    monkeypatch.setattr("rackproof.evidence.folder.kit_digest", lambda: "0" * 64)
    assert "recorded by another build of rackproof 0.1.0" in refused(world, "--resume", world.runs[0].name)


def test_a_run_is_not_continued_against_another_text_of_the_architecture(world: World) -> None:
    stopped(world)
    path = world.folder / "architectures/small.yaml"
    path.write_text(path.read_text().replace("Small rack", "Smaller rack"))
    assert "has changed since it began" in refused(world, "--resume", "latest")


def other_architecture(world: World, path: str) -> str:
    """An architecture that the inventory does not name."""
    file = world.folder / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("{apiVersion: refarch/v1, extends: small, metadata: {id: other, version: 1.0.0, title: Other}}")
    return str(file)


def test_a_run_is_continued_against_its_own_architecture(world: World) -> None:
    other_architecture(world, "architectures/other.yaml")
    world.hooks["storage/local/read"] = interrupt
    result = world.run("certify", "a.py", "--quiet", "--architecture", "other")
    world.steps.clear()
    assert "--architecture" not in result.output
    assert "it began with architecture other, not small; start a new run" in refused(
        world, "--resume", world.runs[0].name, "--architecture", "small"
    )
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/local/read"]
    assert world.certificate()["architecture"]["id"] == "other"


def test_a_run_against_a_file_says_how_it_is_continued(world: World) -> None:
    path = other_architecture(world, "elsewhere/our other.yaml")
    world.hooks["storage/local/read"] = interrupt
    result = world.run("certify", "a.py", "--quiet", "--architecture", path)
    world.steps.clear()
    way = result.output.strip().rpartition("continue with: rackproof ")[2]
    assert shlex.split(way)[-1].endswith("elsewhere/our other.yaml")
    assert "began with --architecture, name it again: no reference architecture 'other'" in refused(
        world, "--resume", "latest"
    )
    assert world.run(*shlex.split(way), "--quiet").exit_code == 0
    assert world.steps == ["storage/local/read"]


@pytest.mark.parametrize(
    ("storage", "status", "words"),
    [
        ({"jobs": {"read": JOB.model_dump(mode="json")}}, 2, "profiles.full.storage: expected "),
        (None, 0, ""),
    ],
)
def test_a_run_is_not_certified_against_an_architecture_that_asks_for_more_measuring(
    world: World, storage: dict[str, Any] | None, status: int, words: str
) -> None:
    assert world.certify().exit_code == 0
    document = yaml.safe_load((world.folder / "architectures/small.yaml").read_text())
    document["metadata"]["id"] = "larger"
    document["profiles"]["full"] = {} if storage is None else {"storage": storage}
    path = world.folder / "architectures/larger.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    result = world.run("judge", world.runs[0].name, "--architecture", "larger")
    assert result.exit_code == status, result.output
    sizes = world.verdicts("rack.sizes")
    assert [v["status"] for v in sizes.values()] == ["UNMEASURED"] * bool(words)
    assert all(f"the run's own architecture asks for less than larger: {words}" in v["message"] for v in sizes.values())


# replaced node


def test_a_replaced_node_begins_anew(world: World) -> None:
    stopped(world)
    world.machines["gpu-02"] = 77
    world.boots["gpu-02"] = 9
    result = world.certify("--resume", "latest")
    assert world.steps == ["storage/nfs/read", "storage/local/read"]  # the first was done on the other machine
    assert world.validations == 2
    assert [r.body["stage"] for r in world.records if r.kind is Kind.STAGE and r.body["event"] == "begin"].count(
        "deploy"
    ) == 2
    assert result.exit_code == 0, result.output
    verdict = world.verdicts("run.exchanged")["gpu-02"]
    assert verdict["status"] == "WARN"
    assert "product serial number SN1 → SN77" in verdict["message"]
    assert any("it is another machine than when the run began" in line for line in world.certificate()["caveats"])
    assert "another machine than when the run began" in world.page()


def test_numbers_and_checks_of_the_machine_before_do_not_count(world: World) -> None:
    """The node is exchanged, and the run is interrupted again before anything is done anew."""
    stopped(world)
    world.machines["gpu-02"] = 77
    world.before_validation = interrupt
    world.run("certify", "a.py", "--quiet", "--resume", "latest")
    assert world.run("judge", world.runs[0].name).exit_code == 2
    assert world.verdicts("run.exchanged")["gpu-02"]["status"] == "UNMEASURED"
    assert world.verdicts("nfs.read")["gpu-02"]["status"] == "UNMEASURED"
    assert world.verdicts("nfs.read")["gpu-01"]["status"] == "PASS"


def test_a_replaced_server_is_measured_again_by_its_clients(world: World) -> None:
    stopped(world)
    world.machines["sto-01"] = 77
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/nfs/read", "storage/local/read"]
    assert world.verdicts("run.exchanged")["sto-01"]["status"] == "WARN"


def test_one_machine_under_two_names_is_not_certified(world: World) -> None:
    world.machines["gpu-02"] = world.machines["gpu-01"]
    assert world.certify().exit_code == 1
    (verdict,) = world.verdicts("run.machines").values()
    assert verdict["message"].startswith("expected 2 machines, actual one")


def test_a_node_without_an_identity_is_not_certified(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackproof.run.identity.IDENTITY_COMMAND", "something else")
    assert world.certify().exit_code == 2
    assert {v["status"] for v in world.verdicts("run.identity").values()} == {"UNMEASURED"}


# reboots


def test_a_reboot_between_two_parts_is_named_and_the_node_validated_again(world: World) -> None:
    stopped(world)
    world.boots["gpu-01"] = 2
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.validations == 2
    verdict = world.verdicts("run.rebooted")["gpu-01"]
    assert (verdict["status"], "validated again" in verdict["message"]) == ("WARN", True)
    assert any("rebooted during the run" in line for line in world.certificate()["caveats"])


def test_a_reboot_between_two_steps_is_not_certified_until_the_node_is_validated_again(world: World) -> None:
    world.hooks["storage/local/read"] = lambda: world.boots.update({"gpu-01": 2})
    assert world.certify().exit_code == 2
    verdict = world.verdicts("run.rebooted")["gpu-01"]
    assert (verdict["status"], "not validated since" in verdict["message"]) == ("UNMEASURED", True)
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.verdicts("run.rebooted")["gpu-01"]["status"] == "WARN"
    assert world.steps == ["storage/nfs/read", "storage/local/read"]  # nothing was measured again


# narrowed validation


def test_a_narrowed_validation_that_is_continued_validates_everything(world: World) -> None:
    world.failing.add(("gpu.xid", "gpu-01"))
    assert world.run("validate", "a.py", "--quiet", "-k", "not xid").exit_code == 0
    assert world.run("judge", "latest").exit_code == 2
    assert world.certificate()["caveats"] == ["Validation limited to -k 'not xid'."]
    assert "Validation limited to -k" in world.page()
    assert world.certify("--resume", "latest").exit_code == 1
    assert world.verdicts("gpu.xid")["gpu-01"]["status"] == "FAIL"
    assert len(world.runs) == 1


def test_a_failed_result_is_replaced_by_a_whole_validation_only_and_the_page_says_so(world: World) -> None:
    world.failing.add(("gpu.xid", "gpu-01"))
    world.silent.add(("base.kernel", "gpu-02"))
    assert world.certify().exit_code == 1
    world.failing.clear()
    original = world.validate

    def half(session, on_check, on_planned, *, selection, folder):  # type: ignore[no-untyped-def]
        def once(result) -> None:  # type: ignore[no-untyped-def]
            on_check(result)
            if result.check == "gpu.xid":
                raise KeyboardInterrupt

        return original(session, once, on_planned, selection=selection, folder=folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rackproof.run.stages.run_validators", half)
        world.run("certify", "a.py", "--quiet", "--resume", "latest")
    world.run("judge", "latest")
    assert world.verdicts("gpu.xid")["gpu-01"]["status"] == "FAIL"
    world.silent.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    (verdict,) = world.verdicts("run.replaced").values()
    assert verdict["status"] == "WARN"
    assert "gpu.xid on gpu-01 (gpu.xid is not so)" in verdict["message"]
    assert "gpu.xid on gpu-01" in world.page()


# lost node


def test_a_node_lost_under_load_stays_in_the_verdict(world: World) -> None:
    world.hooks["storage/nfs/read"] = lambda: world.dead.add("gpu-02")
    world.hooks["storage/local/read"] = interrupt
    world.run("certify", "a.py", "--quiet")
    world.run("judge", "latest")
    lost = world.verdicts("run.lost")["gpu-02"]
    assert lost["status"] == "UNMEASURED"
    assert "lost during storage/nfs/read" in lost["message"]
    assert "never answered again" in lost["message"]
    world.dead.clear()
    world.steps.clear()
    result = world.certify("--resume", "latest")
    assert result.exit_code == 0, result.output
    assert world.steps == ["storage/nfs/read", "storage/local/read"]
    assert world.validations == 2
    lost = world.verdicts("run.lost")["gpu-02"]
    assert lost["status"] == "WARN"
    assert "answered again afterwards; validated again" in lost["message"]
    assert "gpu-02: lost during storage/nfs/read" in world.page()
    assert "gpu-02: lost during" in result.output


def test_a_node_lost_after_its_last_number_is_not_certified(world: World) -> None:
    world.hooks["storage/local/read"] = lambda: world.dead.add("sto-01")
    assert world.certify().exit_code == 2
    assert world.verdicts("run.lost")["sto-01"]["status"] == "UNMEASURED"


# gaps


def test_a_resume_tries_unmeasured_checks_again(world: World) -> None:
    world.silent.add(("gpu.xid", "gpu-01"))
    assert world.certify().exit_code == 2
    world.silent.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.validations == 2
    assert world.steps == ["storage/nfs/read", "storage/local/read"]


def test_a_resume_tries_steps_again_that_lack_numbers(world: World) -> None:
    world.hooks["storage/nfs/read"] = lambda: world.dead.add("gpu-02")
    world.hooks["storage/local/read"] = lambda: world.dead.discard("gpu-02")
    assert world.certify().exit_code == 2
    world.steps.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/nfs/read", "storage/local/read"]  # the state of gpu-02 before the second is unknown
    (verdict,) = world.verdicts("run.replaced").values()
    assert "step storage/nfs/read (1 number)" in verdict["message"]


def test_a_deploy_that_changes_a_node_later_makes_its_numbers_void(world: World) -> None:
    stopped(world)
    world.machines["gpu-01"] = 50  # the deploy runs again, since the machine is another one
    world.deploys.append(("gpu-01", "gpu-02"))
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/nfs/read", "storage/local/read"]


# parts are not certified


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("validate", r"All \d+ checks passed\. Without the benchmarks nothing is certified\."),
        ("bench", r"All 4 criteria met\. Without the checks nothing is certified\."),
    ],
)
def test_a_part_prints_no_box_and_certifies_nothing(world: World, command: str, sentence: str) -> None:
    result = world.run(command, "a.py", "--quiet")
    assert result.exit_code == 0, result.output
    assert re.search(sentence, result.output)
    assert "CERTIFIED" not in result.output
    assert "╭" not in result.output
    for name in ("verdicts.json", "junit.xml"):
        assert "CERTIFIED" not in (world.runs[0] / name).read_text()
    assert not (world.runs[0] / "certificate.json").exists()
    as_json = world.run(command, "a.py", "--json")
    assert "CERTIFIED" not in as_json.stdout
    assert world.run("judge", "latest").exit_code == 2
    assert world.certificate()["outcome"] == "INCOMPLETE"


@pytest.mark.parametrize("command", ["validate", "bench"])
def test_a_part_that_fails_says_what(world: World, command: str) -> None:
    world.failing.add(("gpu.xid", "gpu-01"))
    world.rate = 1.0
    result = world.run(command, "a.py", "--quiet")
    assert result.exit_code == 1
    sentence = r"1 of \d+ checks failed, on gpu-01\." if command == "validate" else "4 of 4 criteria failed"
    assert re.search(sentence, result.output)


def test_a_node_that_does_not_answer_is_named_once(world: World) -> None:
    world.dead.add("gpu-02")
    assert world.certify().exit_code == 2
    assert world.verdicts("node.reachable")["gpu-02"]["status"] == "UNMEASURED"
    assert "gpu-02" not in world.verdicts("run.identity")
    assert world.verdicts("run.lost") == {}
    world.dead.clear()
    assert world.certify("--resume", "latest").exit_code == 0


def test_a_resume_repeats_a_step_after_which_a_node_could_not_be_asked(world: World) -> None:
    world.hooks["storage/local/read"] = lambda: setattr(world.computers["gpu-01"], "mute", True)
    assert world.certify().exit_code == 2
    world.computers["gpu-01"].mute = False
    world.steps.clear()
    assert world.certify("--resume", "latest").exit_code == 0
    assert world.steps == ["storage/local/read"]
