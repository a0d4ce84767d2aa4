package role_test

import (
	"fmt"

	"github.com/reeveproject/reeve/sdk/role"
)

// A role whose configuration is a struct: the role has Configuration: settings, and reads it in Run by settings.Of(host).
func ExampleConfigure() {
	type lamp struct {
		Listen string `json:"listen" doc:"host:port on which the light is served"`
		Watts  int    `json:"watts" check:"min=1,max=200"`
	}
	settings := role.Configure(func() *lamp { return &lamp{Listen: "127.0.0.1:0", Watts: 60} }, nil)

	read, err := settings.Decode([]byte(`{"watts": 100}`))
	fmt.Println(*read, err)
	fmt.Println(settings.Check([]byte(`{"watts": 1000, "colour": "red"}`)))
	// Output:
	// {127.0.0.1:0 100} <nil>
	// configuration:
	// 	/colour: no such field; the fields are listen, watts
	// 	/watts: want at most 200
}
