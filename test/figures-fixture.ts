// Measures a row, and passes or fails afterwards (see figures.test.ts).
import t from 'tap'
import { recordFigure } from './soak.ts'

t.test('what is measured', async (t) => recordFigure(t, 'canary', { requests: 1, places: 2, hits: 0 }))
t.test('what comes later', async (t) => t.not(process.env.FAILS, '1'))
