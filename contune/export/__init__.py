"""What a user takes home: the encoder of a run as a folder that other libraries load.

To add a format: write a function that fills a folder and says how it is loaded, and give it a line in `FORMATS`.
"""

from contune.export.exporting import FORMATS, Exported, export_run

__all__ = ["FORMATS", "Exported", "export_run"]
