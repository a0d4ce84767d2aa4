package setup_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

func image(size *int64) *nodev1.Volume {
	return &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: size}}}}
}

func TestParseVolume(t *testing.T) {
	plain := &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}}
	for text, want := range map[string]*nodev1.Volume{
		"":                   plain,
		"plain":              plain,
		"fscrypt":            image(nil),
		"fscrypt:directory":  {Kind: &nodev1.Volume_Fscrypt{Fscrypt: &nodev1.FscryptVolume{}}},
		"fscrypt:20GiB":      image(proto.Int64(20 << 30)),
		"fscrypt:268435456":  image(proto.Int64(256 << 20)),
		"fscrypt:256MiB":     image(proto.Int64(256 << 20)),
		"luks:/dev/sdb":      {Kind: &nodev1.Volume_Luks{Luks: &nodev1.LuksVolume{Device: "/dev/sdb"}}},
		"luks:/dev/mapper/x": {Kind: &nodev1.Volume_Luks{Luks: &nodev1.LuksVolume{Device: "/dev/mapper/x"}}},
	} {
		if got, err := setup.ParseVolume(text); err != nil || !proto.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		":", "zfs", "plain:", "plain:x", "fscrypt:", "fscrypt:255MiB", "fscrypt:-1GiB", "fscrypt:99999999TiB", "fscrypt:20 GiB", "luks", "luks:", "luks:sdb",
	} {
		if got, err := setup.ParseVolume(text); fault.CodeOf(err) != fault.Usage || err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseSeal(t *testing.T) {
	for text, want := range map[string]*nodev1.Seal{
		"":          nil,
		"file":      {Sealer: &nodev1.Seal_File{File: &nodev1.FileSealer{}}},
		"tpm2":      {Sealer: &nodev1.Seal_Tpm2{Tpm2: &nodev1.Tpm2Sealer{}}},
		"tpm2:7,11": {Sealer: &nodev1.Seal_Tpm2{Tpm2: &nodev1.Tpm2Sealer{Pcrs: []uint32{7, 11}}}},
	} {
		if got, err := setup.ParseSeal(text); err != nil || !proto.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{":", "file:x", "tpm", "tpm2:", "tpm2:24", "tpm2:7,", "tpm2:-1"} {
		if got, err := setup.ParseSeal(text); fault.CodeOf(err) != fault.Usage || err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// What is asked of the volume is in the document, so that reeved reads it.
func TestMakeEncrypted(t *testing.T) {
	_, plan := newPlan(t)
	var err error
	if plan.Volume, err = setup.ParseVolume("fscrypt:1GiB"); err != nil {
		t.Fatal(err)
	}
	if plan.Seal, err = setup.ParseSeal("tpm2:7"); err != nil {
		t.Fatal(err)
	}
	plan.RecoveryRecipient = recipient
	if _, err := setup.Make(plan); err != nil {
		t.Fatal(err)
	}
	parameters, err := setup.ReadParameters(plan.File)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(parameters.GetVolume(), image(proto.Int64(1<<30))) || !proto.Equal(parameters.GetSeal(), plan.Seal) ||
		parameters.GetBootstrap().GetRecoveryRecipient() != recipient {
		t.Errorf("the document says %v", parameters)
	}
}

// A volume that nothing would open once the machine is broken is not set up.
func TestNoRecoveryKey(t *testing.T) {
	tests := map[string]func(*setup.Plan){
		"none for an image": func(p *setup.Plan) { p.Volume = image(nil) },
		"none for a device": func(p *setup.Plan) {
			p.Volume = &nodev1.Volume{Kind: &nodev1.Volume_Luks{Luks: &nodev1.LuksVolume{Device: "/dev/sdb"}}}
		},
		"mistyped": func(p *setup.Plan) { p.RecoveryRecipient = recipient[:len(recipient)-1] + "q" },
		"the key, not its recipient": func(p *setup.Plan) {
			p.Volume, p.RecoveryRecipient = image(nil), "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ"
		},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		edit := tests[name]
		t.Run(name, func(t *testing.T) {
			_, plan := newPlan(t)
			edit(&plan)
			if _, err := setup.Make(plan); err == nil || fault.CodeOf(err) != fault.Usage {
				t.Errorf("error %v", err)
			}
			for _, path := range []string{plan.File, plan.OwnerKeyFile} {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s was made all the same: %v", path, err)
				}
			}
		})
	}
}

// Whatever a person gives, it is a volume or a fault of usage.
func FuzzVolumeAndSeal(f *testing.F) {
	for _, seed := range []string{"plain", "fscrypt:1GiB", "fscrypt:directory", "luks:/dev/sdb", "file", "tpm2:7,11", ":", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if volume, err := setup.ParseVolume(text); (err == nil) != (volume.GetKind() != nil) || err != nil && fault.CodeOf(err) != fault.Usage {
			t.Errorf("volume %q: %v, %v", text, volume, err)
		}
		if seal, err := setup.ParseSeal(text); err == nil && text != "" && seal.GetSealer() == nil || err != nil && fault.CodeOf(err) != fault.Usage {
			t.Errorf("seal %q: %v, %v", text, seal, err)
		}
	})
}
