// The Prometheus text format (version 0.0.4), read strictly: what it does not allow throws. (`Nan`
// is prom-client's; Prometheus reads numbers by Go's ParseFloat, which ignores case.)
const sampleLine =
  /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (NaN|Nan|[+-]?(?:Inf|[0-9.]+(?:e[+-]?[0-9]+)?))(?: -?[0-9]+)?$/
const suffixes = /_(?:bucket|sum|count)$/

export interface Sample {
  name: string
  labels: Record<string, string>
  value: number
}

export interface Metrics {
  samples: Sample[]
  types: Map<string, string>
  /** The only sample that has these labels, among others; 0 if there is none. */
  value(name: string, labels?: Record<string, string>): number
}

export function parsePrometheus(text: string): Metrics {
  if (!text.endsWith('\n')) throw new Error('the last line does not end')
  const types = new Map<string, string>()
  const samples: Sample[] = []
  const seen = new Set<string>()
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('# HELP ')) continue
    const [, , name, type] = line.startsWith('# TYPE ') ? line.split(' ') : []
    if (name !== undefined && type !== undefined) {
      if (types.has(name)) throw new Error(`a second TYPE of ${name}`)
      types.set(name, type)
      continue
    }
    const sample = parseSample(line)
    const series = line.slice(0, line.lastIndexOf(' '))
    if (seen.has(series)) throw new Error(`twice: ${series}`)
    seen.add(series)
    if (!types.has(sample.name) && !types.has(sample.name.replace(suffixes, ''))) {
      throw new Error(`no TYPE of ${sample.name}`)
    }
    samples.push(sample)
  }
  return {
    samples,
    types,
    value(name, labels = {}) {
      const wanted = Object.entries(labels)
      const found = samples.filter(
        (sample) => sample.name === name && wanted.every(([label, value]) => sample.labels[label] === value),
      )
      if (found.length > 1) throw new Error(`${name} ${JSON.stringify(labels)} is ambiguous`)
      return found[0]?.value ?? 0
    },
  }
}

function parseSample(line: string): Sample {
  const [, name, labels = '', value] = sampleLine.exec(line) ?? []
  if (name === undefined || value === undefined) throw new Error(`not a sample: ${line}`)
  const pairs = [...labels.matchAll(/([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [
    label,
    text,
  ])
  return { name, labels: Object.fromEntries(pairs), value: Number(value.replace('Inf', 'Infinity')) }
}
