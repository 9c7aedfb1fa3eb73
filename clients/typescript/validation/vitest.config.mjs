export default { test: { globals: true, include: ["*.spec.mjs"], testTimeout: 60_000, hookTimeout: 60_000 } };
