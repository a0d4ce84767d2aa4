package params_test

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/params"
)

// An age recipient, and one with a letter changed.
const (
	recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	mistyped  = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8q"
)

// withVolume is good parameters with another volume.
func withVolume(volume, recovery string) string {
	document := strings.Replace(good, "volume: {plain: {}}", "volume: "+volume, 1)
	if recovery != "" {
		document = strings.Replace(document, "bootstrap:\n", "bootstrap:\n  recovery_recipient: "+recovery+"\n", 1)
	}
	return document
}

func TestVolumesAndSealers(t *testing.T) {
	for name, document := range inorder.Of(map[string]string{
		"fscrypt":            withVolume("{fscrypt: {}}", recipient),
		"fscrypt, image":     withVolume("{fscrypt: {image: {}}}", recipient),
		"image elsewhere":    withVolume("{fscrypt: {image: {path: /srv/reeve, size_bytes: 268435456}}}", recipient),
		"image in system":    withVolume("{fscrypt: {image: {path: /d/system/other.img}}}", recipient),
		"image beside data":  withVolume("{fscrypt: {image: {path: /d/data.img}}}", recipient),
		"luks":               withVolume("{luks: {device: /dev/disk/by-id/x}}", recipient),
		"plain, recoverable": withVolume("{plain: {}}", recipient),
		"file":               good + "seal: {file: {}}\n",
		"tpm2":               good + "seal: {tpm2: {}}\n",
		"tpm2, all":          good + "seal: {tpm2: {device: /run/swtpm.sock, pcrs: [0, 7, 23], timeout: 2s}}\n",
		"log on a plain one": good + "log: {file: /d/data/log}\n",
	}) {
		t.Run(name, func(t *testing.T) { parsed(t, document) })
	}
}

func TestVolumeProblems(t *testing.T) {
	const (
		image  = "volume.fscrypt.image.path: "
		needed = "bootstrap.recovery_recipient: is needed for an encrypted volume"
	)
	at := func(path string) string { return withVolume("{fscrypt: {image: {path: "+path+"}}}", recipient) }
	for name, test := range inorder.Of(map[string]struct {
		document string
		want     []string
	}{
		"fscrypt without a recovery key": {withVolume("{fscrypt: {}}", ""), []string{needed, "reeve recovery-key new"}},
		"luks without a recovery key":    {withVolume("{luks: {device: /dev/sdb}}", ""), []string{needed}},
		"a mistyped recipient":           {withVolume("{fscrypt: {}}", mistyped), []string{"p.yaml:11:23 bootstrap.recovery_recipient:", "is not the public half of a recovery key"}},
		"a mistyped one for plain":       {withVolume("{plain: {}}", mistyped), []string{"bootstrap.recovery_recipient:", "is not the public half of a recovery key"}},
		"a secret key as the recipient":  {withVolume("{fscrypt: {}}", "AGE-SECRET-KEY-1AAAA"), []string{"bootstrap.recovery_recipient:", "treat it as leaked"}},
		"image in data":                  {at("/d/data/x.img"), []string{image + "lies within directories.data"}},
		"image in data, roundabout":      {at("/d/system/../data/x.img"), []string{image + "lies within directories.data"}},
		"image is data":                  {at("/d/data"), []string{image + "lies within directories.data"}},
		"image in run":                   {at("/run/reeve/d/x.img"), []string{image + "lies within directories.run"}},
		"image is above":                 {at("/d"), []string{image + "is a directory of the node"}},
		"image is system":                {at("/d/system"), []string{image + "is a directory of the node"}},
		"image is the configuration":     {at("/d/system/configuration.json"), []string{image + `must end in ".img"`}},
		"image is a directory":           {at("/srv/x/"), []string{image + "names a directory"}},
		"image is relative":              {at("x.img"), []string{image}},
		"image is small":                 {withVolume("{fscrypt: {image: {size_bytes: 1}}}", recipient), []string{"volume.fscrypt.image.size_bytes:"}},
		"two kinds":                      {withVolume("{fscrypt: {}, luks: {device: /dev/sdb}}", recipient), []string{"p.yaml:5"}},
		"device in system":               {withVolume("{luks: {device: /d/system/x}}", recipient), []string{"volume.luks.device: lies within directories.system"}},
		"device in data":                 {withVolume("{luks: {device: /d/data/x}}", recipient), []string{"volume.luks.device: lies within directories.data"}},
		"device in run":                  {withVolume("{luks: {device: /run/reeve/d/x}}", recipient), []string{"volume.luks.device: lies within directories.run"}},
		"no device":                      {withVolume("{luks: {}}", recipient), []string{"volume.luks.device:"}},
		"no sealer":                      {good + "seal: {}\n", []string{"seal.sealer:"}},
		"registers":                      {good + "seal: {tpm2: {pcrs: [7, 7, 24]}}\n", []string{"seal.tpm2.pcrs:", "seal.tpm2.pcrs[2]:"}},
		"TPM in data":                    {good + "seal: {tpm2: {device: /d/data/tpm}}\n", []string{"seal.tpm2.device: lies within directories.data"}},
		"log in an encrypted volume": {
			withVolume("{fscrypt: {}}", recipient) + "log: {file: /d/data/log}\n", []string{"log.file: lies within directories.data"},
		},
		"everything at once": {
			withVolume("{fscrypt: {image: {path: /d/data/x}}}", "") + "seal: {tpm2: {device: here, timeout: 1ms}}\nlog: {file: /d/data/log, level: loud}\n",
			[]string{"p.yaml:5:34 " + image, "p.yaml:11:3 " + needed, "seal.tpm2.device:", "seal.tpm2.timeout:", "log.file:", "log.level:"},
		},
	}) {
		t.Run(name, func(t *testing.T) {
			_, err := params.Parse("p.yaml", []byte(test.document))
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "KEY-1") {
				t.Errorf("the error shows a key:\n%v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not speak of %q:\n%v", want, err)
				}
			}
		})
	}
}
