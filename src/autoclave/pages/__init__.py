"""Pages that load nothing: templates, words for numbers, and charts as SVG. Needs jinja2; imports nothing of ours."""
