import { type AuthProvider, type HttpClient, JwtAuthProvider, StaticKeyAuth } from "../transport/index.js";
import type { ClientConfig } from "../wire/index.js";

/** Where the server works with JWTs: every request from here on carries one, got in exchange for the credential. */
export function installAuth(http: HttpClient, config: ClientConfig): void {
  if (config.pjwtAuthEnabled) http.auth = new JwtAuthProvider(http, exchangeCredential(http, config));
}

/** A server may ask for the credential command where a plain key is given. */
function exchangeCredential(http: HttpClient, config: ClientConfig): AuthProvider {
  const enforceCommand = config.credentialDefaultSource === "credential_cmd";
  return enforceCommand && http.auth instanceof StaticKeyAuth
    ? http.resolveAuth({ enforceCommand })
    : http.auth;
}
