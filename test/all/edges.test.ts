import { runTogether } from '../run/together.ts'

runTogether(import.meta.filename)
