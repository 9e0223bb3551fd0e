"""The files that commands write where the user says: no file with content is written over."""

from pathlib import Path

from gcjax import files


def check_new_file(option: str, file: str | None) -> None:
    """Raises `ValueError`, before anything is computed, if a file has content, is a folder, or would be in none.

    A device or what stands for one, such as /dev/stdout, or an empty file, may be there.

    Args:
      option: by which it is given, as `--out`.
      file: its path; nothing is checked if None.
    """
    if file is None:
        return
    path = Path(file)
    with files.os_errors_as_value_error(f"{option} must be a file", file):  # as of a name that is too long
        is_folder, has_content = path.is_dir(), path.is_file() and path.stat().st_size > 0
    if is_folder:
        raise ValueError(f"{option} must be a file; {file} is a folder.")
    is_device = path.is_relative_to("/dev") or path.is_relative_to("/proc")
    if has_content and not is_device:
        raise ValueError(f"{option} must be a new file or an empty one; {file} has content. Choose another one.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{option} must be a file in a folder that exists; {folder} does not.")
