/** Where the credential of a request comes from. */
export interface AuthProvider {
  /** The value for X-API-Key; undefined sends none. */
  token(): Promise<string | undefined>;
  close?(): void;
}
