/** The version of this package; a test holds it equal to package.json. */
export const SDK_VERSION = "0.1.0";

/** The version that is sent as `sdk_version`: the official SDK release whose behaviour this one follows. */
export const PROTOCOL_VERSION = "0.36.0";
