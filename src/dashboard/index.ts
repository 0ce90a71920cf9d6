/** The dashboard: a page that shows runs, what they say and what a server does, and the small server that feeds it. */
export { createDashboard, type Dashboard, type DashboardOptions } from "./server/app.js";
export { type RunningDashboard, startDashboard } from "./server/start.js";
export type { TinkerServer } from "./server/tinker-server.js";
