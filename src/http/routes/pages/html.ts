/** The frame of every page: no script, nothing loaded from elsewhere, light or dark as the reader has it. */

export const contentSecurityPolicy = "default-src 'none'; style-src 'unsafe-inline'"

export const escaped = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

/** Turns text of the schemas into HTML: escapes it, and marks up what is in backticks as code. */
export const prose = (text: string) => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>')

export const code = (text: string) => `<code>${escaped(text)}</code>`

export const table = (heads: string[], rows: string[][]) => `<table>
<thead><tr>${heads.map((head) => `<th>${head}</th>`).join('')}</tr></thead>
<tbody>
${rows.map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`).join('\n')}
</tbody></table>`

const style = `:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}
code,pre{font:.9em/1.5 ui-monospace,monospace;background:#8882}
code{padding:.1em .3em}
pre{padding:.75rem 1rem;overflow-x:auto;border-radius:.4rem}
h2{margin-top:3rem}h3{margin-top:2.5rem}h3 code{font-size:1em}
dt{font-weight:600}dd{margin:0 0 .5rem}
table{border-collapse:collapse;display:block;overflow-x:auto}
th,td{text-align:left;vertical-align:top;padding:.25rem 1rem .25rem 0;border-bottom:1px solid #8884}`

export const page = (title: string, body: string) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${escaped(title)} · Latchkey</title>
<style>${style}</style>
</head><body>
${body}
</body></html>
`
