// Which node of a cluster counts a key, and why it cannot be reached. Without a cluster: the test
// sets the slots of the client, and reports what happens to its connections.
import { Cluster, Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { watchServers } from '../../src/redis/servers.ts'

const [one, other, former] = ['127.0.0.1:7000', '127.0.0.1:7001', '127.0.0.1:7002'] as const

/** Two masters share the slots. */
function watch(t: Test) {
  const seen = { lost: [] as string[], refreshes: 0 }
  const client = new Cluster([one], { lazyConnect: true })
  const node = new Redis({ host: '127.0.0.1', port: 7000, lazyConnect: true })
  t.teardown(() => client.disconnect())
  const servers = watchServers(client, {
    onMasters: () => seen.refreshes++,
    onLost: (server) => seen.lost.push(server),
  })
  const slots = Array.from({ length: 16_384 }, (_, slot) => [slot < 8192 ? one : other, former])
  const refresh = () => {
    Object.assign(client, { slots })
    client.emit('refresh')
  }
  return {
    client,
    node,
    servers,
    seen,
    refresh,
    fail: (server: string, error: Error) => client.emit('node error', error, server),
  }
}

const notConnected = { message: 'not connected' }
const vague = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
const wrongPassword = new Error('WRONGPASS')

t.test('of the errors of a node, the last one that says why counts', async (t) => {
  for (const { errors, wanted } of [
    { errors: [vague], wanted: vague },
    { errors: [vague, refused], wanted: refused },
    { errors: [refused, vague], wanted: refused },
    { errors: [refused, vague, wrongPassword], wanted: wrongPassword },
  ]) {
    const { servers, fail } = watch(t)
    t.match(servers.fault(one), notConnected)
    for (const error of errors) fail(one, error)
    t.equal(servers.fault(one), wanted)
    t.equal(servers.fault(''), wanted, 'also while the nodes of the keys are unknown')
  }
})

t.test('the errors of a node are forgotten once it is connected, or is no master', async (t) => {
  const { client, node, servers, refresh, fail } = watch(t)
  for (const server of [one, other, former]) fail(server, refused)
  refresh()
  t.match([one, other, former, ''].map(servers.fault), [refused, refused, notConnected, notConnected])
  client.emit('+node', node)
  node.emit('ready')
  t.match([one, other].map(servers.fault), [notConnected, refused])
})

t.test('a node that leaves is lost, and with the last connection each master is', async (t) => {
  const { client, node, seen, refresh } = watch(t)
  refresh()
  client.emit('-node', node)
  t.strictSame(seen.lost, [one])
  client.emit('close')
  t.strictSame(seen.lost, [one, one, other])
  // Without a listener, this would end the process.
  client.emit('error', refused)
})

t.test('the masters are those with slots, and each has an id', async (t) => {
  const { servers, seen, refresh } = watch(t)
  t.strictSame([...servers.masters()], [''], 'none is known yet')
  t.equal(servers.serverOf('apk_1'), '')
  refresh()
  t.strictSame([...servers.masters()], [one, other])
  t.equal(seen.refreshes, 1)
  t.strictSame([one, other].map(servers.idOn).map(servers.serverOf), [one, other])
  t.type(servers.idOn(former), 'string', 'any id will do')
})

t.test(
  'a node is asked over its own connection, and one that the cluster has left out over any',
  async (t) => {
    const { client, node, servers, refresh, fail } = watch(t)
    refresh()
    t.intercept(client, 'nodes', { value: () => [node] })
    const all = [one, other, former, '']
    Object.assign(node, { status: 'ready' })
    t.match(
      all.map(servers.fault),
      all.map(() => notConnected),
    )
    Object.assign(client, { status: 'ready' })
    t.match(all.map(servers.fault), [null, null, null, null])
    fail(other, refused)
    t.equal(servers.fault(other), refused, 'but its own error says more')
    Object.assign(node, { status: 'connecting' })
    t.match(servers.fault(one), notConnected)
    t.strictSame([one, other].map(servers.connection), [node, undefined])
  },
)
