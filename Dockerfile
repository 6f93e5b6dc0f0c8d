# Latchkey without Postgres and Redis. Set DATABASE_URL, HASH_SECRET, OPS_TOKEN and, for more than one
# instance, REDIS_URL. See docs/operations.md. It needs no writable file system: run it with a read-only root.

FROM node:22-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json ./
COPY schemas ./schemas
COPY plugins ./plugins
COPY src ./src
COPY sql ./sql
RUN npm run build
# The Postgres binaries come with a development dependency: DATABASE_URL makes them unnecessary.
RUN npm prune --omit=dev

FROM node:22-slim
ENV NODE_ENV=production \
    HOST=0.0.0.0 \
    OPS_HOST=0.0.0.0
WORKDIR /app
# Owned by root, so that the process cannot change its own program.
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/sql ./sql
COPY --from=build /app/dist ./dist
COPY --from=build /app/src/ops/dashboard ./src/ops/dashboard
# The base image's user "node", by number so that Kubernetes' runAsNonRoot can check it.
USER 1000:1000
# 3000: the service. 9464: probes, metrics and the admin API, for the internal network only.
EXPOSE 3000 9464
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + (process.env.OPS_PORT || 9464) + '/healthz').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# Exec form: node is process 1 and receives SIGTERM itself. Stopping takes up to 25 s, so raise
# --stop-timeout.
ENTRYPOINT ["node", "--max-semi-space-size=32", "dist/src/cli.js"]
CMD ["serve"]
