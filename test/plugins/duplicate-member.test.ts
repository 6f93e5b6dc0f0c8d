// A JSON object with a name twice is found, because parsers disagree about which of the two counts.
import fc from 'fast-check'
import t from 'tap'
import { duplicateMember } from '../../plugins/duplicate-member.ts'

t.test('names that only look alike are not duplicates', async (t) => {
  const texts = [
    ...['{}', '[]', '"a"', '0', 'null', '{"a":1,"b":2}', '{"a":1,"A":2,"a ":3}', '{"":1,"\\u0000":2}'],
    ...['{"a":{"a":1},"b":{"a":1}}', '[{"a":1},{"a":1}]', '{"a":["a","a"],"b":"a"}'],
    ...['{"a":"\\"a\\":1,\\"a\\":2"}', '{"a\\\\":1,"a":2,"\\"a":3}', '{"é":1,"e\\u0301":2}'],
    ...['{"__proto__":1,"constructor":2,"toString":3}', '{"a":[[],{}],"b":[{"c":[]}],"c":1}'],
  ]
  for (const text of texts) {
    t.doesNotThrow(() => JSON.parse(text), text)
    t.equal(duplicateMember(text), null, text)
  }
})

const twice: Record<string, string> = {
  '{"name":1,"name":1}': 'name',
  '{"a":1,"b":{"c":{}},"a":[]}': 'a',
  ' { "a" : "x" ,\n"b":1,\t"a" : 2 } ': 'a',
  '{"name":"x","\\u006eame":"y"}': 'name',
  '{"a\\/b":1,"a/b":2}': 'a/b',
  '{"":1,"":2}': '',
  '{"__proto__":1,"__proto__":2}': '__proto__',
  '{"a":{"b":[1,{"c":1,"c":2}]}}': 'a.b.c',
  '[{"x":1},{"x":1,"x":2}]': 'x',
  '{"a":"}","a":"{"}': 'a',
}
t.test('a duplicate is found and named by its path', async (t) => {
  for (const [text, name] of Object.entries(twice)) {
    t.doesNotThrow(() => JSON.parse(text), text)
    t.equal(duplicateMember(text), name, text)
  }
})

t.test('what JSON.stringify writes has no duplicate until a member is repeated', async () => {
  fc.assert(fc.property(fc.jsonValue(), (value) => duplicateMember(JSON.stringify(value)) === null))
  fc.assert(
    fc.property(fc.string(), fc.jsonValue(), fc.jsonValue(), (name, one, other) => {
      const member = JSON.stringify(name)
      const [a, b] = [JSON.stringify(one), JSON.stringify(other)]
      return duplicateMember(`{${member}:${a},"x${member.slice(1)}:${b},${member}:${b}}`) === name
    }),
  )
})

t.test('deep nesting does not overflow the stack', async (t) => {
  const deep = 1_000_000
  t.equal(duplicateMember('['.repeat(deep) + ']'.repeat(deep)), null)
  t.equal(duplicateMember(`${'{"a":'.repeat(deep)}0${'}'.repeat(deep)}`), null)
})
