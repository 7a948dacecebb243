"""`snakemake stream` in a copy of the project: shards divided, killed, done again and gathered, and what is refused."""

import hashlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import assemble_run
from warpbook.runs import tables

IMAGES = 60
SMALL = {"images": IMAGES, "variants": {"cpu": "im2col_blas"}}
SAME = ["stream_sha256", "labels_sum", "mismatched_labels"]


@pytest.fixture(scope="module")
def streaming(workspace_for_all):
    """A copy of the project that streams by a small variant."""
    workspace_for_all.configure(stream=SMALL)
    return workspace_for_all


def shards_of(workspace, shards, images=IMAGES):
    path = workspace.folder / "results" / "parts" / "stream_shards" / f"fa18-im2col_blas-{images}-{shards}-1.csv"
    return tables.STREAM_SHARDS.read(path)


def asked(shards, images=IMAGES):
    return ["stream", "--config", f"stream={{images: {images}, shards: {shards}}}"]


def program_s_sha256(workspace, images):
    labels = workspace.folder / "results" / "stream" / "labels" / "cpu" / "fa18-trained" / f"im2col_blas-{images}.npy"
    return hashlib.sha256(np.load(labels).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def streamed(streaming):
    """What streams over one shard and over three said."""
    return {shards: streaming.snakemake(*asked(shards)) for shards in (1, 3)}


def test_labels_are_equal_over_1_and_3_shards_and_equal_to_the_program_s(streaming, streamed):
    found = []
    for shards in streamed:
        rows = shards_of(streaming, shards)
        assert rows.shard.tolist() == list(range(1, shards + 1))
        assert rows["first"].tolist() == [0, *rows.end[:-1]]
        assert rows.end.iloc[-1] == IMAGES
        assert rows.mismatched_labels.tolist() == [0] * shards
        assert (rows.max_rss_kib > 1 << 10).all()
        assert (rows.read_s + rows.compute_s <= rows.ended_s - rows.first_read_s).all()
        found.append((rows.stream_sha256.iloc[0], rows.labels_sum.sum()))
    assert len(set(found)) == 1
    assert found[0][0] == program_s_sha256(streaming, IMAGES)
    assert f"fa18 im2col_blas: {IMAGES} images over 1 CPU in" in streamed[3].stdout + streamed[3].stderr
    whole = tables.STREAMS.read(streaming.folder / "results" / "stream" / "streams.csv")
    assert whole.shards.tolist() == [1, 3]
    assert whole.labels_sum.nunique() == whole.stream_sha256.nunique() == 1
    assert streaming.leftovers() == []


def test_streams_are_parts_of_this_machine_s_run(streaming, streamed):
    part = f"results/parts/stream_shards/fa18-im2col_blas-{IMAGES}-1-1.csv"
    assert part in streaming.snakemake("--dry-run", "--printshellcmds", "measure").stdout
    gathered = assemble_run.group_by_table([Path(part)])
    assert gathered[tables.STREAM_SHARDS] == [Path(part)]
    assert sum(map(len, gathered.values())) == 1


def worker_of(workspace) -> int | None:
    """A worker of the workspace's stream that has begun to write labels."""
    if not any((workspace.folder / "results" / "stream").glob("*/.*.labels.npy.*/*.npy")):
        return None
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            here = (path / "cwd").resolve() == workspace.folder.resolve()
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if here and b"scripts/stream_shard.py" in words and words[0].endswith(b"python3"):
            return int(path.name)
    return None


def killed_in_its_midst(workspace, process) -> None:
    while not (worker := worker_of(workspace)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    os.kill(worker, signal.SIGKILL)


def test_a_killed_worker_s_shard_is_done_again_and_the_table_is_the_same(streaming):
    images = 1000
    before = set(streaming.logs())
    process = streaming.start(*asked(2, images))
    killed_in_its_midst(streaming, process)
    words, _ = process.communicate(timeout=300)
    assert process.returncode == 0, words
    (log,) = set(streaming.logs()) - before
    assert log.read_text().count("Error in rule stream_shard") == 1
    again = shards_of(streaming, 2, images)
    assert again.end.tolist() == [500, 1000]
    assert set(again.stream_sha256) == {program_s_sha256(streaming, images)}
    assert streaming.leftovers() == []


def test_shards_that_were_done_before_all_was_killed_are_kept(streaming, streamed):
    folder = streaming.folder / "results" / "stream" / f"fa18-im2col_blas-{IMAGES}-3-1"
    before = shards_of(streaming, 3)
    for name in ("2-of-3.measured.json", "2-of-3.labels.npy"):
        (folder / name).unlink()
    (streaming.folder / "results" / "parts" / "stream_shards" / f"fa18-im2col_blas-{IMAGES}-3-1.csv").unlink()
    done = streaming.snakemake(*asked(3))
    again = [words for words in streaming.finished(done) if words.startswith("Streaming")]
    assert again == ["Streaming shard 2-of-3 through im2col_blas"]
    assert shards_of(streaming, 3)[SAME].equals(before[SAME])


def test_a_file_of_images_cut_short_is_refused_by_a_sentence(streaming, streamed):
    path = streaming.folder / "results" / "stream" / "images" / "fa18-1.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    try:
        done = streaming.snakemake(*asked(1), check=False)
    finally:
        path.unlink()
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "fa18-1.npy holds 40959900 bytes of images, and its 10000 images take 40960000; delete it and run" in said
    assert "Traceback" not in said


def test_a_stream_that_cannot_be_is_refused_by_a_sentence(streaming):
    for stream, words in [
        ({}, "stream.variants.cpu in config.yaml names no variant; say which: --config stream="),
        ({"variants": {"cpu": "direct"}}, "stream.variants.cpu in config.yaml: direct runs on the gpu"),
        ({"shards": "many"}, "stream.shards"),
    ]:
        streaming.configure(stream=stream)
        try:
            done = streaming.snakemake("stream", check=False)
        finally:
            streaming.configure(stream=SMALL)
        assert done.returncode != 0
        assert words in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
