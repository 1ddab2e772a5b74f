"""How a person signs in to a provider: by a code, or by a browser on this machine.

device.py   waits until a code has been typed elsewhere     browser.py   waits for the browser's way back, or for its address to be pasted
"""
