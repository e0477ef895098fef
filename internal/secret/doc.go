// Package secret owns how secrets are kept and hidden: sealing at rest under a
// key ring, masking of known values in texts, redaction of URLs, and the form
// of API keys.
//
// It must not store anything, must not read configuration or the environment,
// and no error of it may hold a key, a plaintext or a part of one.
package secret
