"""The page of ``dvc plots`` with all its JavaScript inside, so that plots show without a network.

``python -m caploc.reporting.page`` writes it to .dvc/plots/page.html; DVC puts the plots in its place.
"""

import html
from importlib.metadata import version
from pathlib import Path
from string import Template

import vl_convert

PAGE = Path(".dvc/plots/page.html")

_SNIPPET = "window.vegaEmbed = vegaEmbed;"  # what the plots of DVC call

_HOLES = ("{plot_divs}", "{refresh_tag}", "{scripts}")

_TEMPLATE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{refresh_tag}
<title>caploc: plots</title>
<style>
:root { color-scheme: light; }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem; background: #fff; color: #1b1b1b;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; }
body > div { overflow-x: auto; margin-bottom: 2.5rem; }
footer { color: #666; font-size: .85rem; }
</style>
<!-- $notice -->
<script>
$javascript
</script>
</head>
<body>
<h1>Heads that each capability needs</h1>
{plot_divs}
<footer>$notice</footer>
</body>
</html>
""")


def page() -> str:
    """Return the HTML template: Vega, Vega-Lite and Vega-Embed inlined, ``{plot_divs}`` left for DVC."""
    version_5 = newest_v5(vl_convert.get_vegalite_versions())
    javascript = vl_convert.javascript_bundle(snippet=_SNIPPET, vl_version=version_5)
    for text in ("</script", "<!--", *_HOLES):
        if text in javascript:
            raise ValueError(f"the JavaScript holds {text}, which would break the page")
    made_by = f"vl-convert-python {version('vl-convert-python')}"
    notice = f"Vega, Vega-Lite and Vega-Embed, licence BSD-3-Clause (bundled by {made_by})"
    return _TEMPLATE.substitute(notice=html.escape(notice), javascript=javascript)


def newest_v5(versions: list[str]) -> str:
    """Return the newest Vega-Lite 5, the version that the templates are written in."""
    return max((v for v in versions if v.startswith("5.")), key=lambda v: int(v.split(".")[1]))


def main() -> None:
    """Write the page where DVC looks for it; run from the repository's root."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
