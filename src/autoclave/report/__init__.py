"""Everything that draws: reports, the viewer, comparisons, pages of results and charts, as files that load nothing.

Reads run folders and results, writes one file of each page. Needs jinja2; no torch. `training` never imports it.
"""
