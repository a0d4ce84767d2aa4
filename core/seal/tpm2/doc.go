// Package tpm2 seals secrets by a TPM 2.0, which gives them back only on this machine and only while its platform configuration registers (PCRs) are as they
// were (TPM 2.0 Library, part 3: TPM2_Create, TPM2_PolicyPCR, TPM2_Unseal).
package tpm2
