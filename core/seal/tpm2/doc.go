// Package tpm2 seals secrets by a TPM 2.0, which gives them back only on this machine and only while its platform configuration registers (PCRs) are as they
// were (TPM 2.0 Library, part 3: TPM2_Create, TPM2_PolicyPCR, TPM2_Unseal).
//
// It owns nothing on disk and keeps nothing in the TPM: each call opens it, makes the storage key of the TCG's template anew, and flushes what it loaded. The
// sealed form is the caller's to keep.
//
//	owner seed of the TPM ─► storage key (ECC P-256) ─► encrypts ─► sealed object { secret, policy: these PCRs have these values }
//	                              └─► salt of the session in which the secret passes between processor and TPM, encrypted
//
// Every command is bounded in time, whatever the TPM does. What a TPM answers is bytes from outside: it is believed as far as the session authenticates it.
package tpm2
