// What tests import: real servers, shared by the run or a test's own, and a network that can be
// broken.
export { type Certificates, makeCertificates } from './certificates.ts'
export { openDatabase } from './databases.ts'
export { type LoadBalancer, startLoadBalancer } from './load-balancer.ts'
export { type PrivatePostgres, startPrivatePostgres } from './postgres.ts'
export { type PrivateRedis, startPrivateRedis } from './redis.ts'
export { type RedisCluster, startRedisCluster } from './redis-cluster.ts'
export { startTcpProxy, type TcpProxy } from './tcp-proxy.ts'
export { type Services, useServices } from './use-services.ts'
