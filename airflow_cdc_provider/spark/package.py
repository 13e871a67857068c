"""This package as an archive that a cluster gives to driver and executors."""

from __future__ import annotations

import zipfile
from pathlib import Path

import airflow_cdc_provider


def package_archive(folder: Path) -> Path | None:
    """Zip this package's Python files into `folder`; None if it runs from such an archive."""
    package = Path(airflow_cdc_provider.__file__).parent
    if not package.is_dir():
        return None
    archive = folder / "airflow_cdc_provider.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*.py")):
            packed.write(file, Path(package.name) / file.relative_to(package))
    return archive
