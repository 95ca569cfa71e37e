"""Saving a pair in a configuration file that people write in, too."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from localspec.config import load_settings
from localspec.errors import ConfigError, DiskFullError, UsageError
from localspec.pairing.naming import save_pair

ENTRY = {"target": "/models/t.gguf", "draft": "owner/name-GGUF:Q8_0", "ctx": 4096}


def test_a_file_that_is_not_there_is_made(tmp_path: Path):
    file = tmp_path / "new" / "config.toml"
    save_pair(file, "mine", ENTRY, replace=False, as_default=True)
    settings = load_settings(file, {}, {}, pair="mine")
    assert settings.pair == "mine"
    assert settings.pairs["mine"].target == Path("/models/t.gguf")
    assert settings.pairs["mine"].draft == "owner/name-GGUF:Q8_0"
    assert settings.ctx == 4096


def test_comments_order_and_mode_of_the_file_stay(tmp_path: Path):
    file = tmp_path / "config.toml"
    text = "# mine\nctx = 2048 # small\n\n[chat]\nsystem = 'Be brief.'\n\n[pairs.old]\ntarget = 'o.gguf' # keep\n"
    file.write_text(text)
    file.chmod(0o640)
    save_pair(file, "a new.one", ENTRY, replace=False, as_default=True)
    written = file.read_text()
    for line in text.splitlines():
        assert line in written
    settings = load_settings(file, {}, {})
    assert (settings.pair, settings.ctx, settings.chat.system) == ("a new.one", 2048, "Be brief.")
    assert set(settings.pairs) == {"old", "a new.one"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


def test_a_default_that_somebody_chose_stays(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('pair = "demo"\n')
    save_pair(file, "mine", ENTRY, replace=False, as_default=True)
    assert load_settings(file, {}, {}).pair == "demo"


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(tmp_path: Path):
    file = tmp_path / "config.toml"
    save_pair(file, "mine", ENTRY, replace=False, as_default=False)
    save_pair(file, "mine", ENTRY, replace=False, as_default=False)  # the same again
    before = file.read_bytes()
    other = {**ENTRY, "draft": "d.gguf"}
    with pytest.raises(UsageError, match=r"mine already: target = /models/t\.gguf"):
        save_pair(file, "mine", other, replace=False, as_default=False)
    assert file.read_bytes() == before
    save_pair(file, "mine", other, replace=True, as_default=False)
    assert load_settings(file, {}, {}).pairs["mine"].draft == tmp_path / "d.gguf"


@pytest.mark.parametrize("text", ["pairs = 5\n", "pair = \n", 'mode = "fast"\n', "[pairs]\nx = 1\n"])
def test_a_file_that_does_not_load_is_left_as_it_is(tmp_path: Path, text: str):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        save_pair(file, "mine", ENTRY, replace=False, as_default=True)
    assert file.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J"])
def test_what_is_no_name(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match="is no name"):
        save_pair(tmp_path / "config.toml", name, ENTRY, replace=False, as_default=True)


def test_a_link_stays_a_link(tmp_path: Path):
    real, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text("ctx = 2048\n")
    link.symlink_to(real)
    save_pair(link, "mine", ENTRY, replace=False, as_default=True)
    assert link.is_symlink()
    assert "mine" in load_settings(real, {}, {}).pairs


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be read"):
        save_pair(tmp_path / "file" / "config.toml", "mine", ENTRY, replace=False, as_default=True)


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "config.toml"
    file.write_text("ctx = 2048\n")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(DiskFullError, match="No space left"):
        save_pair(file, "mine", ENTRY, replace=False, as_default=True)
    assert file.read_text() == "ctx = 2048\n"
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


FORMS = {
    "tables between others": "[pairs.x]\ntarget = 'x.gguf'\n[chat]\nsystem = 's'\n[pairs.y]\ntarget = 'y.gguf'\n",
    "an inline table": "pairs = {x = {target = 'x.gguf'}}\nctx = 2048\n",
    "dotted keys": "pairs.x.target = 'x.gguf'\nmode = 'draft'\n",
    "a mark of byte order": "\ufeffctx = 2048\n",
    "nothing at its end": "ctx = 2048",
    "comments only": "# mine",
    "ends of lines as on Windows": "ctx = 2048\r\n\r\n[pairs.x]\r\ntarget = 'x.gguf'\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_that_loads_takes_a_pair(tmp_path: Path, form: str):
    file = tmp_path / "config.toml"
    file.write_bytes(FORMS[form].encode())
    before = load_settings(file, {}, {})
    save_pair(file, "mine", ENTRY, replace=False, as_default=True)
    after = load_settings(file, {}, {})
    assert set(after.pairs) == {*before.pairs, "mine"}
    assert after.model_copy(update={"pairs": {}, "pair": None}) == before.model_copy(update={"pairs": {}, "pair": None})
    assert after.pair == "mine"
    if "\r\n" in FORMS[form]:
        assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")


def test_a_pair_that_is_replaced_takes_no_comment_with_it(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text("[pairs.mine]\ntarget = 'x.gguf'\nkv_type = 'q8_0'\n\n# about the chat\n[chat]\nsystem = 's'\n")
    save_pair(file, "mine", ENTRY, replace=True, as_default=False)
    assert "# about the chat" in file.read_text()
    entry = load_settings(file, {}, {}).pairs["mine"]
    assert (entry.kv_type, entry.ctx) == (None, 4096)


@pytest.mark.parametrize(
    "text", ["ctx = 1\nctx = 2\n", "[pairs]\nmine = 3\n", "pairs = [1]\n", "[pairs.mine]\ntarget = [\n"]
)
def test_what_cannot_be_changed_is_told_and_kept(tmp_path: Path, text: str):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        save_pair(file, "mine", ENTRY, replace=True, as_default=True)
    assert file.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


def test_a_path_that_no_configuration_can_hold(tmp_path: Path):
    with pytest.raises(UsageError, match="characters"):
        save_pair(tmp_path / "c.toml", "mine", {"target": "\udcff.gguf"}, replace=False, as_default=True)
    assert not list(tmp_path.iterdir())
