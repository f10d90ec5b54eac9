"""Content codings undone."""

from __future__ import annotations

import gzip
import random
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from server.errors import UpstreamError, UpstreamErrorKind
from server.upstreams.codings import MAX_CODINGS, PIECE_BYTES, content_decoder

NOISE = random.Random(7).randbytes(50_000)
TEXT = b"".join(b'data: {"n":%d,"x":"%x"}\n\n' % (n, n * n * 7919) for n in range(3000)) + NOISE


def bare_deflate(data):
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


ENCODERS = {
    b"gzip": gzip.compress,
    b"X-GZip": gzip.compress,
    b"deflate": zlib.compress,
    b"deflate, identity": bare_deflate,
    b"br": brotli.compress,
    b"zstd": zstandard.compress,
    b"gzip, br": lambda data: brotli.compress(gzip.compress(data)),
    b"zstd,deflate , gzip": lambda data: gzip.compress(zlib.compress(zstandard.compress(data))),
}
each_coding = pytest.mark.parametrize("coding", ENCODERS, ids=lambda coding: coding.decode())


def undo(coding, data, size=PIECE_BYTES):
    """All that the data stands for, and the longest piece that was given."""
    decoder = content_decoder([(b"content-encoding", coding)])
    pieces = []
    for start in range(0, len(data), size):
        decoder.push(data[start : start + size])
        while piece := decoder.pull():
            pieces.append(piece)
    decoder.finish()
    return b"".join(pieces), max(map(len, pieces), default=0)


@each_coding
@pytest.mark.parametrize("size", [1, 1000, 1 << 30])
def test_coding_is_undone_in_any_reads(coding, size):
    """Reads of one byte, some and all give the same text."""
    text = TEXT if size > 1 else TEXT[:5000] + NOISE[:500]
    assert undo(coding, ENCODERS[coding](text), size)[0] == text


@given(st.sampled_from(sorted(ENCODERS)), st.binary(), st.integers(1, 100))
def test_any_text_is_undone(coding, text, size):
    """No text and no cut is special."""
    assert undo(coding, ENCODERS[coding](text), size)[0] == text


@pytest.mark.parametrize(
    ("coding", "compressor", "flush"),
    [
        (b"gzip", zlib.compressobj(wbits=31), lambda z: z.flush(zlib.Z_SYNC_FLUSH)),
        (b"deflate", zlib.compressobj(), lambda z: z.flush(zlib.Z_SYNC_FLUSH)),
        (b"deflate", zlib.compressobj(wbits=-15), lambda z: z.flush(zlib.Z_SYNC_FLUSH)),
        (b"zstd", zstandard.ZstdCompressor().compressobj(), lambda z: z.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)),
        (b"br", brotli.Compressor(), lambda z: z.flush()),
    ],
)
def test_flushed_line_is_given_out_at_once(coding, compressor, flush):
    """What the server has flushed needs no byte that comes later."""
    compress = compressor.process if coding == b"br" else compressor.compress
    decoder = content_decoder([(b"content-encoding", coding)])
    for number in range(50):
        line = b"data: %d\n\n" % number
        got = b""
        for byte in compress(line) + flush(compressor):
            decoder.push(bytes([byte]))
            while piece := decoder.pull():
                got += piece
        assert got == line


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"zstd", b"gzip, zstd"])
def test_bomb_comes_in_bounded_pieces(coding):
    """64 MiB of zeros from a few bytes are never held at once."""
    bomb = ENCODERS.get(coding, lambda data: zstandard.compress(gzip.compress(data)))(bytes(64 * 1024 * 1024))
    decoder = content_decoder([(b"content-encoding", coding)])
    total = 0
    for start in range(0, len(bomb), PIECE_BYTES):
        decoder.push(bomb[start : start + PIECE_BYTES])
        while piece := decoder.pull():
            assert len(piece) <= 2 * PIECE_BYTES
            total += len(piece)
    decoder.finish()
    assert total == 64 * 1024 * 1024


@each_coding
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data[:1], id="begun"),
        pytest.param(lambda data: b"\xffno coding at all" + data, id="foreign"),
        pytest.param(lambda data: data + b"\xffjunk", id="junk behind"),
    ],
)
def test_broken_data_is_a_protocol_error(coding, spoil):
    """Data that is cut or foreign is named as the fault it is, with its coding."""
    with pytest.raises(UpstreamError) as caught:
        undo(coding, spoil(ENCODERS[coding](TEXT)))
    assert caught.value.kind is UpstreamErrorKind.PROTOCOL
    assert "is no valid" in caught.value.message


@pytest.mark.parametrize(("coding", "compress"), [(b"gzip", gzip.compress), (b"zstd", zstandard.compress)])
def test_members_in_a_row_are_one_text(coding, compress):
    """RFC 1952 and RFC 8878 allow several members or frames, even empty ones."""
    data = compress(b"one, ") + compress(b"") + compress(b"two")
    for size in (1, 1000):
        assert undo(coding, data, size)[0] == b"one, two"


@each_coding
def test_empty_body_is_no_error(coding):
    """A response without a byte of body is not coded."""
    assert undo(coding, b"") == (b"", 0)


@pytest.mark.parametrize(
    "value", [b"", b"identity", b"aws-chunked", b"gzip, aws-chunked", b", ".join([b"gzip"] * (MAX_CODINGS + 1))]
)
def test_unknown_coding_is_left_alone(value):
    """Nothing is undone where not all can be."""
    assert content_decoder([(b"content-encoding", value), (b"content-type", b"text/plain")]) is None


def test_codings_of_several_lines_are_stacked():
    """Two header lines mean the same as one with a comma."""
    decoder = content_decoder([(b"content-encoding", b"br"), (b"content-encoding", b"gzip")])
    decoder.push(gzip.compress(brotli.compress(b"text")))
    assert decoder.pull() == b"text"


def test_large_zstd_window_is_refused():
    """RFC 9659 limits the window, and so the memory, that a server may ask for."""
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    ).compressobj()
    with pytest.raises(UpstreamError):
        undo(b"zstd", compressor.compress(TEXT) + compressor.flush())
