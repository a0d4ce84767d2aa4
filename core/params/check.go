package params

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/seal/recovery"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/proto/ticket"
)

// rules are all rules for parameters: the message's own, and those across fields. All problems are reported at once, each with its field, from which
// protoyaml finds its place in the text.
type rules struct{}

// Validate has the signature that protoyaml expects.
func (rules) Validate(message proto.Message) error {
	validator, err := protovalidate.New(protovalidate.WithMessages(&nodev1.Parameters{}), protovalidate.WithDisableLazy())
	if err != nil {
		return fmt.Errorf("the rules of the parameters do not compile: %w", err)
	}
	err = validator.Validate(message)
	var found *protovalidate.ValidationError
	if err != nil && !errors.As(err, &found) {
		return err
	}
	all := &protovalidate.ValidationError{}
	if found != nil {
		all.Violations = found.Violations
	}
	if parameters, ok := message.(*nodev1.Parameters); ok {
		all.Violations = append(all.Violations, check(parameters)...)
	}
	if len(all.Violations) == 0 {
		return nil
	}
	return all
}

// The IDs of the rules across fields.
const (
	ruleDirectories   = "directories.apart"
	ruleConfiguration = "role.configuration"
	ruleVolume        = "volume.place"
	ruleRecovery      = "volume.recovery"
	ruleLog           = "log.place"
	ruleSeal          = "seal.place"
	ruleTicket        = "register.ticket"
)

func check(parameters *nodev1.Parameters) []*protovalidate.Violation {
	var c checker
	c.directories(parameters.GetDirectories())
	c.configurations("bootstrap", parameters.GetBootstrap().GetRoles())
	c.configurations("register", parameters.GetRegister().GetRoles())
	c.volume(parameters)
	c.recovery(parameters)
	c.ticket(parameters)
	return c.found
}

// checker collects problems.
type checker struct{ found []*protovalidate.Violation }

// problem adds a problem. place is the path of field names; a number after a list's name is an index.
func (c *checker) problem(rule, message string, place ...any) {
	path := &validate.FieldPath{}
	for _, part := range place {
		switch part := part.(type) {
		case string:
			path.Elements = append(path.Elements, &validate.FieldPathElement{FieldName: proto.String(part)})
		case int:
			path.Elements[len(path.Elements)-1].Subscript = &validate.FieldPathElement_Index{Index: uint64(part)} //nolint:gosec // an index
		}
	}
	c.found = append(c.found, &protovalidate.Violation{
		Proto: &validate.Violation{Field: path, RuleId: proto.String(rule), Message: proto.String(message)},
	})
}

// directories refuses directories within each other: system is small, data may be sealed, run is a tmpfs.
func (c *checker) directories(d *nodev1.Directories) {
	named := []struct{ name, path string }{
		{"system", d.GetSystem()}, {"data", d.GetData()}, {"run", d.GetRun()},
	}
	for i, a := range named {
		for j, b := range named {
			switch {
			case i == j || a.path == "" || b.path == "":
			case filepath.Clean(a.path) == filepath.Clean(b.path):
				if i < j {
					c.problem(ruleDirectories, "is the same as directories."+a.name, "directories", b.name)
				}
			case within(a.path, b.path):
				c.problem(ruleDirectories, "lies within directories."+b.name, "directories", a.name)
			}
		}
	}
}

// configurations refuses role configurations that are not JSON.
func (c *checker) configurations(section string, roles []*nodev1.BootstrapRole) {
	for i, role := range roles {
		if text := role.GetConfiguration(); text != "" && !json.Valid([]byte(text)) {
			c.problem(ruleConfiguration, "is not a JSON document", section, "roles", i, "configuration")
		}
	}
}

// ticket refuses an invalid ticket, and a ticket file in a place that is not readable when the ticket is needed. It quotes nothing of a ticket.
func (c *checker) ticket(parameters *nodev1.Parameters) {
	register, d := parameters.GetRegister(), parameters.GetDirectories()
	if text := register.GetTicket(); strings.HasPrefix(text, ticket.Prefix) {
		if _, err := ticket.Parse(text); err != nil {
			c.problem(ruleTicket, strings.TrimPrefix(err.Error(), "ticket: "), "register", "ticket")
		}
	}
	for _, directory := range []struct{ name, path string }{{"data", d.GetData()}, {"run", d.GetRun()}} {
		if within(register.GetTicketFile(), directory.path) {
			c.problem(ruleTicket, "lies within directories."+directory.name+", which cannot be read before the node is made", "register", "ticket_file")
		}
	}
}

// volume refuses places that are unusable while the volume is closed, or that the volume would hide.
func (c *checker) volume(parameters *nodev1.Parameters) {
	d, volume := parameters.GetDirectories(), parameters.GetVolume()
	if image := volume.GetFscrypt().GetImage(); image.GetPath() != "" {
		path := image.GetPath()
		place := []any{"volume", "fscrypt", "image", "path"}
		switch {
		case strings.HasSuffix(path, "/"):
			c.problem(ruleVolume, "names a directory; the image is a file", place...)
		case within(path, d.GetData()):
			c.problem(ruleVolume, "lies within directories.data, where the image is mounted", place...)
		case within(path, d.GetRun()):
			c.problem(ruleVolume, "lies within directories.run, which is empty after a reboot", place...)
		case within(d.GetSystem(), path) || within(d.GetData(), path) || within(d.GetRun(), path):
			c.problem(ruleVolume, "is a directory of the node or a parent of one; the image is a file", place...)
		case within(path, d.GetSystem()) && filepath.Ext(path) != ".img":
			c.problem(ruleVolume, `must end in ".img" within directories.system, where the node keeps its own files`, place...)
		}
	}
	if device := volume.GetLuks().GetDevice(); device != "" {
		for _, directory := range []struct{ name, path string }{{"system", d.GetSystem()}, {"data", d.GetData()}, {"run", d.GetRun()}} {
			if within(device, directory.path) {
				c.problem(ruleVolume, "lies within directories."+directory.name+"; it is a block device, such as /dev/disk/by-id/…", "volume", "luks", "device")
			}
		}
	}
	if device := parameters.GetSeal().GetTpm2().GetDevice(); within(device, d.GetData()) {
		c.problem(ruleSeal, "lies within directories.data, which is closed until the TPM has answered", "seal", "tpm2", "device")
	}
	if file := parameters.GetLog().GetFile(); encrypted(volume) && within(file, d.GetData()) {
		c.problem(ruleLog, "lies within directories.data: the log is written before the volume is open, and would not be encrypted", "log", "file")
	}
}

// recovery refuses a volume that nothing could open once the machine's own key is lost.
func (c *checker) recovery(parameters *nodev1.Parameters) {
	section, recipient := "bootstrap", RecoveryRecipient(parameters)
	if parameters.GetRegister() != nil {
		section = "register"
	}
	switch {
	case parameters.GetCluster() == nil:
	case recipient == "" && encrypted(parameters.GetVolume()):
		c.problem(ruleRecovery, "is needed for an encrypted volume: run `reeve recovery-key new`, which prints its recipient (age1…)",
			section, "recovery_recipient")
	case recipient != "":
		if err := recovery.Recipient(recipient); err != nil {
			c.problem(ruleRecovery, strings.TrimPrefix(err.Error(), "recovery: "), section, "recovery_recipient")
		}
	}
}

// RecoveryRecipient returns the age recipient of the owner's recovery key in the parameters; "" if there is none.
func RecoveryRecipient(parameters *nodev1.Parameters) string {
	return cmp.Or(parameters.GetBootstrap().GetRecoveryRecipient(), parameters.GetRegister().GetRecoveryRecipient())
}

// encrypted reports whether the volume is of an encrypted kind.
func encrypted(volume *nodev1.Volume) bool {
	return volume.GetFscrypt() != nil || volume.GetLuks() != nil
}

// within reports whether a path is a directory or below it. A relative path is below nothing; other rules report it.
func within(path, directory string) bool {
	if !filepath.IsAbs(path) || !filepath.IsAbs(directory) {
		return false
	}
	path, directory = filepath.Clean(path), filepath.Clean(directory)
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}
