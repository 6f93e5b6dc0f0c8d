// What tests import: real servers, given by the run or of a test's own, and a network that can be made to fail.
export { type Certificates, makeCertificates } from './certificates.ts'
export { type LoadBalancer, startLoadBalancer } from './load-balancer.ts'
export { type PrivatePostgres, startPrivatePostgres } from './private-postgres.ts'
export { type PrivateRedis, startPrivateRedis } from './private-redis.ts'
export { type RedisCluster, startRedisCluster } from './redis-cluster.ts'
export { startTcpProxy, type TcpProxy } from './tcp-proxy.ts'
export { type Services, useServices } from './use-services.ts'
