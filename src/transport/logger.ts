/** Where log lines go; `console` fits. */
export interface Logger {
  error(message: string, ...details: unknown[]): void;
  warn(message: string, ...details: unknown[]): void;
  info(message: string, ...details: unknown[]): void;
  debug(message: string, ...details: unknown[]): void;
}

export type LogLevel = "off" | "error" | "warn" | "info" | "debug";
