package tpm2

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/keys"
)

const (
	// nonceSize is the size of session nonces.
	nonceSize = 16
	// encryption is the AES key size of sessions in bits.
	encryption = 128
	// attempts is how often an operation is repeated because a register changed meanwhile. A kernel that measures files extends registers all the
	// time.
	attempts = 32
)

// sealedTemplate is the public part of a sealed object. Only its policy gives access (UserWithAuth is not set), and it cannot move to another TPM.
func sealedTemplate(policy []byte) tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type:    tpm2.TPMAlgKeyedHash,
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM:    true,
			FixedParent: true,
			// Changing the protection needs the policy too.
			AdminWithPolicy: true,
			// Wrong tries are not counted: there is nothing to guess, and the tries of others must not lock the node out.
			NoDA: true,
		},
		AuthPolicy: tpm2.TPM2BDigest{Buffer: policy},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgKeyedHash, &tpm2.TPMSKeyedHashParms{}),
	}
}

// parent is the loaded storage key.
type parent struct {
	handle tpm2.TPMHandle
	name   tpm2.TPM2BName
	public tpm2.TPMTPublic
}

// auth authorizes the use of the storage key. It has no password: what is below it is protected because the key does not leave the TPM.
func (p *parent) auth(session tpm2.Session) tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: p.handle, Name: p.name, Auth: session}
}

// session are the options of a session whose key only the TPM with the storage key knows.
func (p *parent) session(direction func() tpm2.AuthOption) []tpm2.AuthOption {
	return []tpm2.AuthOption{tpm2.Salted(p.handle, p.public), direction()}
}

func encryptIn() tpm2.AuthOption  { return tpm2.AESEncryption(encryption, tpm2.EncryptIn) }
func encryptOut() tpm2.AuthOption { return tpm2.AESEncryption(encryption, tpm2.EncryptOut) }

// primary derives the storage key. A TPM derives the same key until it is cleared.
func (c *connection) primary() (*parent, error) {
	answer, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(c)
	if err != nil {
		return nil, in("TPM2_CreatePrimary", err)
	}
	p, err := parentOf(answer)
	if err != nil {
		c.flush(answer.ObjectHandle)
		return nil, in("TPM2_CreatePrimary", err)
	}
	return p, nil
}

// parentOf checks that the answer is a storage key. The answer is not authenticated; the name shows whether it is the right key.
func parentOf(answer *tpm2.CreatePrimaryResponse) (*parent, error) {
	public, err := answer.OutPublic.Contents()
	if err != nil || public.Type != tpm2.TPMAlgECC {
		return nil, &strangeError{"a storage key that cannot be parsed"}
	}
	expected := tpm2.ECCSRKTemplate
	expected.Unique = public.Unique
	if !bytes.Equal(tpm2.Marshal(*public), tpm2.Marshal(expected)) {
		return nil, &strangeError{"another storage key than requested"}
	}
	name, err := tpm2.ObjectName(public)
	if err != nil || !bytes.Equal(name.Buffer, answer.Name.Buffer) {
		return nil, &strangeError{"a storage key with a wrong name"}
	}
	return &parent{handle: answer.ObjectHandle, name: *name, public: *public}, nil
}

// seal seals a secret to values of registers.
func (c *connection) seal(secret *keys.Secret, wanted []register) (*blob, error) {
	sealed := &blob{Version: version, Bank: bank, PCRs: wanted}
	pcrs, values, err := sealed.wanted()
	if err != nil {
		return nil, err
	}
	policy, err := policyOf(pcrs, values)
	if err != nil {
		return nil, err
	}
	p, err := c.primary()
	if err != nil {
		return nil, err
	}
	defer c.flush(p.handle)
	// The session's salt is encrypted for this key, so it must be the TPM's.
	if err := c.sealer.known.is(p.name.Buffer); err != nil {
		return nil, err
	}
	inner, _, err := tpm2.HMACSession(c, tpm2.TPMAlgSHA256, nonceSize, p.session(encryptIn)...)
	if err != nil {
		return nil, in("TPM2_StartAuthSession", err)
	}
	defer c.flush(inner.Handle())
	session := &sealing{Session: inner, secret: secret}
	answer, err := tpm2.Create{
		ParentHandle: p.auth(session),
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
			Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: make([]byte, secret.Len())}),
		}},
		InPublic: tpm2.New2B(sealedTemplate(policy)),
	}.Execute(c)
	if session.err != nil {
		return nil, &ownError{session.err}
	}
	if err != nil {
		return nil, in("TPM2_Create", err)
	}
	if c.sealer.known.used(p.name.Buffer) {
		c.sealer.log.Info("sealed with a TPM that is trusted on this first use", "device", c.sealer.device, "storage key", hex.EncodeToString(p.name.Buffer))
	}
	sealed.Parent, sealed.Public, sealed.Private = p.name.Buffer, answer.OutPublic.Bytes(), answer.OutPrivate.Buffer
	return sealed, nil
}

// unseal returns the secret.
func (c *connection) unseal(sealed *blob) (*keys.Secret, error) {
	pcrs, values, err := sealed.wanted()
	if err != nil {
		return nil, err
	}
	p, err := c.primary()
	if err != nil {
		return nil, err
	}
	defer c.flush(p.handle)
	// The session's salt is encrypted for this key, so an attacker's key must end here.
	if !bytes.Equal(p.name.Buffer, sealed.Parent) {
		return nil, fmt.Errorf("%w, or something between the processor and the TPM replaces its key: the storage key is %x, the secret's is %x: put the disk back into its machine, or %s",
			ErrOtherTPM, p.name.Buffer, sealed.Parent, wayOut)
	}
	// Record it even if a register blocks the secret. A reseal after a recovery then insists on the same TPM.
	c.sealer.known.named(p.name.Buffer)
	object, err := c.load(p, sealed)
	if err != nil {
		return nil, err
	}
	defer c.flush(object.Handle)
	for range attempts {
		secret, err := c.unsealOnce(p, object, policyPCR(pcrs, values))
		if err == nil {
			c.sealer.known.used(p.name.Buffer)
		}
		if !changed(err) {
			return secret, err
		}
		// A register changed between two commands, or has another value than sealed.
		if err := c.compare(pcrs, values); err != nil {
			return nil, err
		}
	}
	return nil, in("TPM2_Unseal", &lineError{"the registers keep changing", nil})
}

// load loads the sealed object.
func (c *connection) load(p *parent, sealed *blob) (*tpm2.NamedHandle, error) {
	public := tpm2.BytesAs2B[tpm2.TPMTPublic](sealed.Public)
	contents, err := public.Contents()
	if err != nil {
		return nil, damaged("its object cannot be parsed")
	}
	name, err := tpm2.ObjectName(contents)
	if err != nil {
		return nil, damaged("its object cannot be parsed")
	}
	answer, err := tpm2.Load{ParentHandle: p.auth(tpm2.PasswordAuth(nil)), InPrivate: tpm2.TPM2BPrivate{Buffer: sealed.Private}, InPublic: public}.Execute(c)
	for _, code := range []tpm2.TPMRC{tpm2.TPMRCIntegrity, tpm2.TPMRCSize, tpm2.TPMRCInsufficient, tpm2.TPMRCBinding, tpm2.TPMRCValue, tpm2.TPMRCSensitive} {
		if errors.Is(err, code) {
			return nil, damaged("this TPM sealed it but does not accept it any more")
		}
	}
	if err != nil {
		return nil, in("TPM2_Load", err)
	}
	// Authorizations cover this name. The one in the answer is not authenticated.
	return &tpm2.NamedHandle{Handle: answer.ObjectHandle, Name: *name}, nil
}

// unsealOnce returns the secret through a session of its own. *policyError if the registers do not permit it.
func (c *connection) unsealOnce(p *parent, object *tpm2.NamedHandle, policy tpm2.PolicyPCR) (*keys.Secret, error) {
	inner, _, err := tpm2.PolicySession(c, tpm2.TPMAlgSHA256, nonceSize, p.session(encryptOut)...)
	if err != nil {
		return nil, in("TPM2_StartAuthSession", err)
	}
	defer c.flush(inner.Handle())
	policy.PolicySession = inner.Handle()
	if _, err := policy.Execute(c); errors.Is(err, tpm2.TPMRCValue) || errors.Is(err, tpm2.TPMRCPCRChanged) {
		return nil, &policyError{err}
	} else if err != nil {
		return nil, in("TPM2_PolicyPCR", err)
	}
	session := &unsealing{Session: inner}
	_, err = tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: object.Handle, Name: object.Name, Auth: session}}.Execute(c)
	switch {
	case session.err != nil:
		return nil, &ownError{session.err}
	case errors.Is(err, tpm2.TPMRCPolicyFail), errors.Is(err, tpm2.TPMRCPCRChanged):
		return nil, &policyError{err}
	case err != nil:
		session.secret.Destroy()
		return nil, in("TPM2_Unseal", err)
	case session.secret == nil:
		return nil, in("TPM2_Unseal", &strangeError{"an answer without a secret"})
	}
	return session.secret, nil
}
