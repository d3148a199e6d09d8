"""The look of report.html: one page, no network, light or dark as the reader's system is."""

from string import Template

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>caploc: heads of $model</title>
<style>
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5b6168; --line: #d9dce0;
        --card: #f5f6f8; --good: #00694a; --fair: #8a5a00; --poor: #a3263a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --paper: #16181b; --soft: #a2a9b1; --line: #363b41;
          --card: #1f2226; --good: #5fd3a9; --fair: #e8b45a; --poor: #ff8f9f; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
       color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .6rem; }
.soft { color: var(--soft); }
.verdicts { list-style: none; padding: 0; }
.verdicts li { background: var(--card); border-left: .3rem solid var(--soft); border-radius: .3rem;
               padding: .6rem .9rem; margin: .6rem 0; overflow-wrap: anywhere; }
.verdicts .good { border-color: var(--good); } .good strong { color: var(--good); }
.verdicts .fair { border-color: var(--fair); } .fair strong { color: var(--fair); }
.verdicts .poor { border-color: var(--poor); } .poor strong { color: var(--poor); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .7rem; border-bottom: 1px solid var(--line); }
th:first-child, th:last-child, td:last-child { text-align: left; }
td:last-child { min-width: 11rem; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tfoot th, tfoot td { font-weight: 700; border-bottom: 0; }
figure { margin: 1.2rem 0 2rem; overflow-x: auto; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
img { display: block; width: 100%; min-width: 34rem; height: auto; background: #fff; border-radius: .4rem;
      padding: .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--card); padding: .8rem; border-radius: .4rem; overflow-x: auto; font-size: .875rem; }
summary { cursor: pointer; padding: .4rem 0; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } }
</style>
</head>
<body>
<header>
<p class="soft">caploc report</p>
<h1>Heads that each capability of $model needs</h1>
<p class="soft">$shape</p>
</header>
<main>
<section aria-labelledby="verdicts">
<h2 id="verdicts">Verdicts</h2>
<ul class="verdicts">
$verdicts
</ul>
<p class="soft">All scores are of held-out prompts, never used to find the heads. <em>Localized</em>: the
whole interval of the drop lies above twice the spillover. <em>Not selective</em>: the capability drops,
but the others lose too much for that. <em>Not localized</em>: the interval of the drop reaches zero.</p>
</section>
<section aria-labelledby="numbers">
<h2 id="numbers">Numbers</h2>
<div class="scroll">
$summary
</div>
<p class="soft">$comparison.</p>
<details>
<summary>Every drop, with its interval</summary>
<div class="scroll">
$drops
</div>
</details>
</section>
<section aria-labelledby="doubts">
<h2 id="doubts">How sure</h2>
<div class="scroll">
$doubts
</div>
<p class="soft">What $masks masks say, before any held-out prompt. A head's probability is how often it is
chosen when effects and prompts are drawn anew from what the data leave open. <em>Borne out</em>: heads
chosen without some masks predict the scores under these. <em>Worth</em>: the predicted drop less the
weighted harm to the others; more masks can add to it the next column at most, as expected, and are enough
when that is less than a tenth. <em>Harmful</em>: knocking them out clearly helps. $universal</p>
</section>
<section aria-labelledby="figures">
<h2 id="figures">Figures</h2>
$figures
</section>
<section aria-labelledby="provenance">
<h2 id="provenance">Provenance</h2>
<dl>
$provenance
</dl>
<details>
<summary>Parameters</summary>
<pre>$params</pre>
</details>
<p>This command, in the same checkout, makes this report again:</p>
<pre>$command</pre>
</section>
</main>
</body>
</html>
""")
