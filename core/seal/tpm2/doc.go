// Package tpm2 seals secrets with a TPM 2.0. The TPM returns them only on this machine, and only while its platform configuration registers (PCRs)
// have the same values (TPM 2.0 Library, part 3: TPM2_Create, TPM2_PolicyPCR, TPM2_Unseal).
//
// It owns nothing on disk and keeps nothing in the TPM: each call opens the TPM, derives the storage key of the TCG's template again, and flushes
// what it loaded. The caller keeps the sealed form.
//
//	owner seed of the TPM ─► storage key (ECC P-256) ─► encrypts ─► sealed object { secret, policy: these PCRs have these values }
//	                              └─► salt of the session in which the secret passes between processor and TPM, encrypted
//
// Every command has a timeout. A TPM's answers are untrusted input: they count only as far as the session authenticates them.
package tpm2
