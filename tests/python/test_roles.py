"""The access policies in ``deploy/policies``: each role can do its work, and nothing else.

The policies for S3 run against a server that enforces them (``roles_s3_for_tests.py``). Those for
Google Cloud Storage and Azure are only checked for their form and their actions.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import pytest

import siltstone
from siltstone import admin, compaction, ingest

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ROOT / "deploy" / "policies"
PAGE = ROOT / "docs" / "howto-roles.md"
SERVE = Path(__file__).parent / "roles_s3_for_tests.py"
ROLES = ["writer", "reader", "compactor-collector", "backup"]
PATIENCE = 60
NO_LEASE = {"reader_lease": False}
ARN = "arn:aws:s3:::"
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"
PLACEHOLDERS = {"BUCKET", "PREFIX", "TARGET_BUCKET", "TARGET_PREFIX", "SUBSCRIPTION"}
# The actions that the vendors document for the requests that Siltstone sends.
S3_ACTIONS = {
    "s3:ListBucket",
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
}
GCS_ACTIONS = {
    "storage.objects.list",
    "storage.objects.get",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.multipartUploads.create",
    "storage.multipartUploads.abort",
}
AZURE_ACTIONS = {BLOBS + "read", BLOBS + "write", BLOBS + "delete"}


def many(one_or_more: str | list[str]) -> list[str]:
    return [one_or_more] if isinstance(one_or_more, str) else one_or_more


# --- The files -----------------------------------------------------------------------------------


def test_each_role_has_a_file_of_each_store() -> None:
    there = {path.relative_to(POLICIES).as_posix() for path in POLICIES.rglob("*.*")}
    ends = {"s3": "json", "gcs": "yaml", "azure": "json"}
    files = {f"{store}/{role}.{end}" for store, end in ends.items() for role in ROLES}
    assert there == files | {"gcs/condition.yaml", "azure/condition.txt"}
    page = PAGE.read_text()
    for role in ROLES:
        assert f"`{role}`" in page


@pytest.mark.parametrize("role", ROLES)
def test_policies_of_s3(role: str) -> None:
    policy = json.loads((POLICIES / "s3" / f"{role}.json").read_text())
    assert policy["Version"] == "2012-10-17"
    ids = [statement["Sid"] for statement in policy["Statement"]]
    assert len(ids) == len(set(ids))
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        lists = statement["Action"] == "s3:ListBucket"
        assert set(many(statement["Action"])) <= S3_ACTIONS
        for resource in many(statement["Resource"]):
            # A right on objects always has the prefix, and one on the bucket a condition on it.
            form = "(TARGET_)?BUCKET" if lists else r"(TARGET_)?BUCKET/\1PREFIX/([a-z]+/)*\*"
            assert re.fullmatch(ARN + form.replace(r"\1", "(TARGET_)?"), resource)
        if lists:
            prefix = statement["Condition"]["StringLike"]["s3:prefix"]
            assert prefix == resource.removeprefix(ARN).replace("BUCKET", "PREFIX") + "/*"
        else:
            assert "Condition" not in statement


@pytest.mark.parametrize("role", ROLES)
def test_roles_of_gcs(role: str) -> None:
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load((POLICIES / "gcs" / f"{role}.yaml").read_text())
    assert set(read) == {"title", "description", "stage", "includedPermissions"}
    actions = read["includedPermissions"]
    assert len(actions) == len(set(actions))
    assert set(actions) <= GCS_ACTIONS
    deletes = "storage.objects.delete" in actions
    assert deletes == (role in ("writer", "compactor-collector"))
    condition = yaml.safe_load((POLICIES / "gcs" / "condition.yaml").read_text())
    assert set(condition) == {"title", "description", "expression"}
    assert "/buckets/BUCKET/objects/PREFIX/')" in condition["expression"]
    assert "startsWith('PREFIX/')" in condition["expression"]


@pytest.mark.parametrize("role", ROLES)
def test_roles_of_azure(role: str) -> None:
    read = json.loads((POLICIES / "azure" / f"{role}.json").read_text())
    assert read["IsCustom"] is True
    assert read["Actions"] == read["NotActions"] == read["NotDataActions"] == []
    assert read["AssignableScopes"] == ["/subscriptions/SUBSCRIPTION"]
    actions = set(read["DataActions"])
    assert actions <= AZURE_ACTIONS
    assert (BLOBS + "delete" in actions) == (role in ("writer", "compactor-collector"))
    # An action that the condition does not name would be allowed outside of the prefix.
    condition = (POLICIES / "azure" / "condition.txt").read_text()
    named = set(re.findall(r"ActionMatches\{'([^']+)'\}", condition))
    assert named == AZURE_ACTIONS
    assert condition.count("(") == condition.count(")")


def test_no_other_placeholder() -> None:
    for path in POLICIES.rglob("*.*"):
        words = set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", path.read_text()))
        assert words <= PLACEHOLDERS, path


# --- S3 ------------------------------------------------------------------------------------------


class Store:
    """The server, and its administrator."""

    def __init__(self, endpoint: str, log: Path) -> None:
        self.endpoint, self.log = endpoint, log
        boto = pytest.importorskip("boto3")
        place = {"endpoint_url": endpoint, "region_name": "us-east-1"}
        first = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        iam = boto.client("iam", **place, **first)
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        keys = self.user(iam, "administrator", {"Statement": [everything]})
        iam.close()
        keys = dict(zip(first, keys, strict=True))
        self.iam = boto.client("iam", **place, **keys)
        self.s3 = boto.client("s3", **place, **keys)
        for bucket in ("data", "vault"):
            self.s3.create_bucket(Bucket=bucket)
        # From the next request on, the server enforces the policies.
        head = {"Content-Type": "text/plain"}
        enforce = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", b"0", head)
        with urllib.request.urlopen(enforce):
            pass

    def user(self, iam, name: str, policy) -> tuple[str, str]:
        iam.create_user(UserName=name)
        document = json.dumps({"Version": "2012-10-17", **policy})
        iam.put_user_policy(UserName=name, PolicyName="policy", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    def role(self, role: str, prefix: str, target: str = "vault/copies", without=()) -> Role:
        return Role(self, role, prefix, target, without)

    def close(self) -> None:
        self.iam.close()
        self.s3.close()


class Role:
    """A user that has the policy of a role, and the store options of a process in that role."""

    number = 0

    def __init__(self, store: Store, role: str, prefix: str, target: str, without) -> None:
        Role.number += 1
        bucket, target_prefix = target.split("/", 1)
        text = (POLICIES / "s3" / f"{role}.json").read_text()
        filled = {"TARGET_BUCKET": bucket, "TARGET_PREFIX": target_prefix}
        for name, value in {**filled, "BUCKET": "data", "PREFIX": prefix}.items():
            text = text.replace(name, value)
        statements = json.loads(text)["Statement"]
        self.statements = [one for one in statements if one["Sid"] not in without]
        name = f"{role}-{Role.number}"
        self.key, secret = store.user(store.iam, name, {"Statement": self.statements})
        self.store = store
        self.options = {
            "endpoint": store.endpoint,
            "region": "us-east-1",
            "access_key_id": self.key,
            "secret_access_key": secret,
        }

    def asked(self) -> set[tuple[str, str]]:
        """The rights that the requests of this user needed: actions and names."""
        lines = [line.split(" ", 2) for line in self.store.log.read_text().splitlines()]
        return {(action, name) for key, action, name in lines if key == self.key}

    def unused(self) -> set[str]:
        """The rights of the policy that no request needed: their action and folder."""
        asked, found = self.asked(), set()
        for statement in self.statements:
            for resource in many(statement["Resource"]):
                pattern = resource.removeprefix(ARN)
                if statement["Action"] == "s3:ListBucket":
                    pattern += "/" + statement["Condition"]["StringLike"]["s3:prefix"]
                used = [n for a, n in asked if a == statement["Action"] and fnmatchcase(n, pattern)]
                if not used:
                    found.add(f"{statement['Sid']} {pattern.split('/', 3)[-1]}")
        return found


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server on this machine that enforces policies."""
    pytest.importorskip("moto.server")
    log = tmp_path_factory.mktemp("roles") / "log"
    log.touch()
    server = subprocess.Popen(
        [sys.executable, SERVE, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        made = Store(f"http://127.0.0.1:{int(server.stdout.readline())}", log)
        yield made
        made.close()
    finally:
        server.stdin.close()
        server.wait(timeout=PATIENCE)
        server.stdout.close()


def url(prefix: str) -> str:
    return f"s3://data/{prefix}"


def fill(prefix: str, writer: Role, **options) -> None:
    """A database with tables of three flushes and a checkpoint."""
    with siltstone.open(url(prefix), store_options=writer.options, options=options) as db:
        for value in (b"1", b"2", b"3"):
            db.put_many([b"k%03d" % n for n in range(200)], [value] * 200)
            db.flush(memtable=True)
        db.checkpoint(name="nightly", lifetime=3600)


def rows(role: Role, place: str) -> int:
    with siltstone.open_reader(place, store_options=role.options, options=NO_LEASE) as reader:
        return len(list(reader))


def test_writer(store: Store) -> None:
    writer = store.role("writer", "prod/writer")
    fill("prod/writer", writer)
    place, how = url("prod/writer"), {"store_options": writer.options}
    job = ingest.Job(place, **how)
    with job.writer(0) as part:
        part.add(b"z", b"ingested")
    request = job.commit([part.finish()])
    with siltstone.open(place, **how) as db:
        db.ingest(request).wait()
        # A table above 16 MiB is uploaded in parts.
        noise = Random(7)
        db.put_many([b"large%02d" % n for n in range(36)], [noise.randbytes(500_000)] * 36)
        db.flush(memtable=True)
        db.compact()
        db.delete(b"k000").wait()
        db.flush(memtable=True)
        db.compact()
    for _ in range(2):
        report = admin.gc(place, min_age=0, **how)
        assert report.total.failed == report.total.denied == 0
    with siltstone.open_reader(place, **how) as reader:
        assert reader[b"z"] == b"ingested"
    assert writer.unused() <= {"AbortUploads compacted/*", "AbortUploads ingest/*"}


def test_writer_whose_collector_is_elsewhere(store: Store) -> None:
    writer = store.role("writer", "prod/elsewhere", without=("Collect",))
    fill("prod/elsewhere", writer, embedded_gc=False, embedded_compactor=False)
    # Only an opening that fails takes back what it has created, and only under probe/.
    deleted = {name for action, name in writer.asked() if action == "s3:DeleteObject"}
    assert all(name.startswith("data/prod/elsewhere/probe/") for name in deleted)
    report = admin.gc(url("prod/elsewhere"), min_age=0, store_options=writer.options)
    assert report.total.denied > 0
    assert report.total.deleted == 0
    collector = store.role("compactor-collector", "prod/elsewhere")
    report = admin.gc(url("prod/elsewhere"), min_age=0, store_options=collector.options)
    assert report.total.denied == 0
    assert report.total.deleted > 0


def test_reader(store: Store) -> None:
    writer = store.role("writer", "prod/reader")
    fill("prod/reader", writer)
    role = store.role("reader", "prod/reader")
    place, how = url("prod/reader"), {"store_options": role.options}
    with (
        siltstone.open(place, store_options=writer.options) as db,
        siltstone.open_reader(place, options=NO_LEASE, **how) as reader,
    ):
        assert len(list(reader)) == 200
        db[b"new"] = b"row"
        db.flush()
        reader.refresh()
        assert reader[b"new"] == b"row"
    assert admin.verify(place, **how).ok
    assert [one.name for one in admin.list_checkpoints(place, **how)] == ["nightly"]
    assert admin.gc(place, dry_run=True, **how).dry_run
    assert {action for action, _ in role.asked()} == {"s3:ListBucket", "s3:GetObject"}
    assert not role.unused()
    for call in (
        lambda: siltstone.open(place, **how),
        lambda: admin.create_checkpoint(place, name="own", **how),
        lambda: admin.delete_checkpoint(place, "nightly", **how),
        lambda: admin.gc(place, min_age=0, **how),
        lambda: admin.compact(place, **how),
        lambda: siltstone.destroy(place, **how),
    ):
        with pytest.raises(siltstone.Denied, match="PUT"):
            call()
    with pytest.raises(siltstone.Denied):
        ingest.Job(place, **how).writer(0).finish()
    assert rows(role, place) == 201


def test_a_reader_with_a_lease_goes_on_without_it(store: Store, capfd) -> None:
    fill("prod/lease", store.role("writer", "prod/lease"))
    role = store.role("reader", "prod/lease")
    with siltstone.open_reader(url("prod/lease"), store_options=role.options) as reader:
        assert reader[b"k001"] == b"3"
    assert any(action == "s3:PutObject" for action, _ in role.asked())


def test_compactor_and_collector(store: Store) -> None:
    writer = store.role("writer", "prod/jobs", without=("Collect",))
    fill("prod/jobs", writer, embedded_gc=False, embedded_compactor=False)
    role = store.role("compactor-collector", "prod/jobs")
    place, how = url("prod/jobs"), {"store_options": role.options}
    job = ingest.Job(place, store_options=writer.options)
    with job.writer(0) as part:
        part.add(b"z", b"never committed")
    part.finish()
    for is_divided in (False, True):
        if is_divided:
            # Workers of a compaction upload tables into the folder of their unit.
            with compaction.plan(place, **how) as plan:
                assert plan.commit([unit.run(**how) for unit in plan.units])
        else:
            admin.compact(place, **how)
        report = admin.gc(place, min_age=0, **how)
        assert report.total.failed == report.total.denied == 0
        with siltstone.open(
            place, store_options=writer.options, options={"embedded_gc": False}
        ) as db:
            db.put_many([b"k%03d" % n for n in range(200)], [b"4"] * 200)
            db.flush(memtable=True)
    assert rows(role, place) == 200
    # It commits manifests, so it can end a writer, but it cannot write the log.
    with pytest.raises(siltstone.Denied, match="wal/"):
        siltstone.open(place, **how)

    # It removes a softly destroyed database, with the copies that a repair made.
    copy = "prod/jobs/damaged/0000000000000000000000000D/00000000000000000001.sst"
    store.s3.put_object(Bucket="data", Key=copy, Body=b"")
    admin.delete_checkpoint(place, "nightly", **how)
    siltstone.destroy(place, soft=True, store_options=writer.options)
    time.sleep(1.1)  # the server dates objects by whole seconds
    report = admin.gc(place, min_age=0, db_delete_grace=0, **how)
    assert report.total.failed == report.total.denied == 0
    assert report.total.deleted > 0
    with pytest.raises(siltstone.NotFound):
        rows(role, place)
    assert role.unused() <= {"AbortUploads compacted/*", "AbortUploads ingest/*"}


@pytest.mark.parametrize("target", ["vault/copies/towns", "data/copies/towns"])
def test_backup(store: Store, target: str) -> None:
    prefix = "prod/backup-" + target.split("/", maxsplit=1)[0]
    writer = store.role("writer", prefix)
    fill(prefix, writer)
    role = store.role("backup", prefix, target)
    source, mirror, how = url(prefix), f"s3://{target}", {"store_options": role.options}
    assert admin.export(source, mirror, checkpoint="nightly", **how).tables_moved > 0
    with siltstone.open(source, store_options=writer.options) as db:
        db[b"new"] = b"row"
        db.flush()
        second = db.checkpoint(lifetime=3600)
    assert admin.export(source, mirror, checkpoint=second, **how).tables_moved > 0
    assert rows(role, mirror) == 201
    assert admin.verify(mirror, **how).ok
    assert role.unused() <= {"AbortUploads ingest/*"}
    wrote = {name for action, name in role.asked() if action == "s3:DeleteObject"}
    assert all(name.startswith(f"{target}/probe/") for name in wrote)

    with pytest.raises(siltstone.Denied, match="name a checkpoint"):
        admin.export(source, mirror, **how)
    for call in (
        lambda: siltstone.open(source, **how),
        lambda: admin.create_checkpoint(source, name="own", **how),
        lambda: admin.gc(source, min_age=0, **how),
        lambda: admin.compact(source, **how),
        lambda: siltstone.destroy(source, **how),
    ):
        with pytest.raises(siltstone.Denied, match="PUT"):
            call()
    # It adds to the mirror, and deletes nothing of it.
    with pytest.raises(siltstone.Denied):
        siltstone.destroy(mirror, **how)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_reaches_another_prefix(store: Store, role: str) -> None:
    other = f"prod/{role}-of-others"
    fill(other, store.role("writer", other))
    user = store.role(role, f"prod/{role}-of", f"vault/{role}")
    place, how = url(other), {"store_options": user.options}
    for call in (
        lambda: siltstone.open(place, **how),
        lambda: siltstone.open_reader(place, options=NO_LEASE, **how),
        lambda: admin.gc(place, min_age=0, **how),
        lambda: admin.compact(place, **how),
        lambda: admin.export(place, f"s3://vault/{role}", checkpoint="nightly", **how),
        lambda: siltstone.open("s3://vault/elsewhere", **how),
    ):
        with pytest.raises(siltstone.Denied):
            call()


@pytest.mark.parametrize(
    ("right", "named"),
    [
        ("List", "s3:ListBucket.*GET .*/data"),
        ("Read", r"s3:GetObject.*GET .*\.manifest"),
        ("Write", r"s3:PutObject.*PUT .*\.manifest"),
    ],
)
def test_the_error_of_a_missing_right(store: Store, right: str, named: str) -> None:
    prefix = f"prod/missing-{right.lower()}"
    fill(prefix, store.role("writer", prefix))
    user = store.role("writer", prefix, without=(right,))
    with pytest.raises(siltstone.Denied, match=named) as caught:
        siltstone.open(url(prefix), store_options=user.options)
    assert "the store refused the credentials or the permission" in str(caught.value)
    assert user.options["secret_access_key"] not in repr(caught.value)
